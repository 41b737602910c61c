/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tags in the sockets' own storage (stock.h), and where that is for who may not ask for it by the
 * map.
 */
#ifndef RESERV_TAG_STORED_H
#define RESERV_TAG_STORED_H

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct rt_sock);
} stored_socks SEC(".maps");

/* A word of the kernel's memory; 0 where there is none any more. */
static __always_inline u64 rt_word_at(u64 address)
{
	u64 word = 0;

	bpf_probe_read_kernel(&word, sizeof(word), (void *)address);
	return word;
}

/*
 * Of an element of some sockets' storage, by address: what it holds, and whether it is of our map.
 */
static __always_inline u64 rt_storage_data(u64 element)
{
	return element + bpf_core_field_offset(struct bpf_local_storage_elem, sdata) +
	       bpf_core_field_offset(struct bpf_local_storage_data, data);
}

static __always_inline bool rt_storage_is(u64 element)
{
	element += bpf_core_field_offset(struct bpf_local_storage_elem, sdata);
	element += bpf_core_field_offset(struct bpf_local_storage_data, smap);
	return rt_word_at(element) == (u64)&stored_socks;
}

/* Where a socket's own storage has its slots, for who may not ask for it by the map; 0: nowhere. */
#define RT_STORAGES 64 /* maps that one socket has something in */
static __noinline u64 rt_storage_of(struct sock *sk)
{
	u64 at = (u64)sk->sk_bpf_storage;
	u32 i;

	if (!at)
		return 0;
	at = rt_word_at(at + bpf_core_field_offset(struct bpf_local_storage, list));
	bpf_for(i, 0, RT_STORAGES) {
		if (!at)
			break;
		at -= bpf_core_field_offset(struct bpf_local_storage_elem, snode);
		if (rt_storage_is(at))
			return rt_storage_data(at);
		at = rt_word_at(at + bpf_core_field_offset(struct bpf_local_storage_elem, snode));
	}
	return 0;
}

#endif
