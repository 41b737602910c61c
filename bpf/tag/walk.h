/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who has what is tagged: walks over a thread's table of descriptors (rt_fds) and over the sockets
 * that have a tag in their own storage (rt_stored). SYSCALL programs, because some kernels refuse
 * iterators. A run does a bounded piece and says where to go on. What it found stands in its
 * context, so it shares nothing with other runs.
 *
 * A table changes while it is read, and is gone with its last thread. All reads are ones that may
 * fail. What is found counts only if the thread has that table, and the table that file,
 * afterwards.
 */
#define RT_WALK_PIECE 1024
#define RT_WALK_LIST (1 << 20)

static __always_inline u64 rt_open_fds(struct fdtable *fdt, u32 word)
{
	return (u64)RT_CAST(list_head, fdt->open_fds + word)->next;
}

/* A tag of a file, of its place `from` or a later one: which place, plus one; 0: there is none. */
static __noinline u32 rt_walk_file(struct rt_walk *w, struct file *seen, u32 from)
{
	struct file *file = RT_CAST(file, seen);
	struct inode *inode = file->f_inode;
	u64 key, node, word, storage;
	struct rt_file *f;
	struct rt_sock *s;
	struct sock *sk;
	u32 i;

	if (rt_is_socket(inode, rt_format(inode))) {
		sk = RT_CAST(socket, file->private_data)->sk;
		if (!sk)
			return 0;
		key = (u64)sk;
		s = bpf_map_lookup_elem(&socks, &key);
		storage = s ? 0 : rt_storage_of(RT_CAST(sock, sk));
		if (!s && !storage)
			return 0;
		bpf_for(i, from, RT_RESOURCES) {
			node = s ? s->slot[i & (RT_RESOURCES - 1)] : rt_storage_slot(sk, storage, i);
			if (!node || !rt_node(i, node))
				continue;
			w->node = node;
			w->key = s ? key : 0;
			w->resource = i;
			return i + 1;
		}
		return 0;
	}
	key = rt_number((u64)seen);
	bpf_for(i, from, several ? RT_RESOURCES : 1) {
		if (i && !(several >> (i & 31) & 1))
			continue;
		f = rt_file_find_at(key + i);
		if (!f)
			continue;
		word = f->tag;
		w->node = rt_word_node(word);
		w->key = key + i;
		w->resource = rt_word_resource(word);
		if (word && rt_node(rt_word_resource(word), rt_word_node(word)))
			return i + 1;
	}
	return 0;
}

static __always_inline int rt_walk_table(struct rt_walk *w, struct files_struct *files)
{
	struct fdtable *fdt = files->fdt;
	u32 i, found, fd = w->at >> 4, from = w->at & 15, most = fdt->max_fds;
	struct file *file;

	bpf_for(i, 0, RT_WALK_PIECE) {
		if (fd >= most)
			return RT_WALK_END;
		if (!(fd & 63) && !rt_open_fds(fdt, fd >> 6)) {
			fd += 64;
			w->at = (u64)fd << 4;
			continue;
		}
		file = rt_fd_in(fdt, fd);
		found = file ? rt_walk_file(w, file, from) : 0;
		if (found) {
			w->fd = fd;
			w->at = ((u64)fd << 4) + found;
			fdt = files->fdt;
			return fd < fdt->max_fds && rt_fd_in(fdt, fd) == file ? RT_WALK_FOUND : RT_WALK_MORE;
		}
		from = 0;
		fd++;
		w->at = (u64)fd << 4;
	}
	return RT_WALK_MORE;
}

SEC("syscall")
int rt_fds(struct rt_walk *w)
{
	struct task_struct *p = bpf_task_from_pid(w->tid), *leader;
	struct files_struct *files;
	u64 at = w->at;

	w->answer = -E_SRCH;
	if (!p)
		return 0;
	if (p->tgid == w->tgid) {
		bpf_rcu_read_lock();
		leader = p->group_leader;
		files = p->files;
		w->others = p->signal->live.counter > 1 || !leader->files;
		if (!files || (p != leader && files == leader->files)) {
			w->answer = RT_WALK_END;
		} else {
			w->answer = rt_walk_table(w, files);
			if (p->files != files) {
				w->answer = RT_WALK_CHANGED;
				w->at = at;
			}
		}
		bpf_rcu_read_unlock();
	}
	bpf_task_release(p);
	return 0;
}

#ifndef RT_FDS_ONLY
/* One of the lists of the map. It may be long, and one that grows as it is read must end. */
SEC("syscall")
int rt_stored(struct rt_stored *c)
{
	struct bpf_local_storage_map *map = (struct bpf_local_storage_map *)&stored_socks;
	u64 lists = (u64)map->buckets, at, word;
	u32 i, count = 0, resource = c->resource & (RT_RESOURCES - 1);
	int answer = RT_WALK_CHANGED;

	c->count = 0;
	c->answer = RT_WALK_END;
	if (c->at >> map->bucket_log)
		return 0;
	word = rt_stored_word(resource, c->node);
	lists += (u64)c->at * bpf_core_type_size(struct bpf_local_storage_map_bucket);
	lists += bpf_core_field_offset(struct bpf_local_storage_map_bucket, list);
	bpf_rcu_read_lock();
	at = rt_word_at(lists);
	bpf_for(i, 0, RT_WALK_LIST) {
		if (!at) {
			answer = RT_WALK_MORE;
			break;
		}
		at -= bpf_core_field_offset(struct bpf_local_storage_elem, map_node);
		if (!rt_storage_is(at))
			break;
		if (rt_word_at(rt_storage_data(at) + 8 * resource) == word)
			count++;
		at = rt_word_at(at + bpf_core_field_offset(struct bpf_local_storage_elem, map_node));
	}
	bpf_rcu_read_unlock();
	c->answer = answer;
	if (answer == RT_WALK_MORE) {
		c->count = count;
		c->at++;
	}
	return 0;
}
#endif
