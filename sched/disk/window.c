/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The window between the tree and a disk (YFQ's batch): what the tree has dispatched and the disk
 * has not completed, at most `size` requests, in the order of the disk. In user space only.
 *
 * Problem. Fair order is not the disk's order, and an arm that goes to and fro halves the disk.
 *
 * Idea. The tree dispatches up to `size` requests, charged at that moment; of these the next one
 * upwards goes to the disk (C-LOOK). The bounds of yfq and SFQ(D) are for `size` slots, whatever
 * happens among them.
 *
 * Rules:
 *   1. room: size - what is in it, on the disk or before it, if that is any (it may have been larger); `drain`: only from empty until the first one goes out        rw_room
 *   2. next: one that 2 size completions have passed over; else the smallest sector from the arm upwards, else the smallest     rw_next
 *
 * Example (also a test): size 4, arm at 0, 30 10 40 20: 10; 5 comes; 20 30 40 5.
 *
 * Bound: a request in the window goes out after at most 3 size + slots others.
 */
#define RW_MAX 256
#define RW_NOTHING 0xffffffffu

struct rw_entry {
	u64 sector;
	u32 item; /* the caller's name for it */
	u32 passed; /* completions since it came */
};

struct rw_window {
	u32 size, slots; /* slots: requests that the disk has at once */
	u32 n, out;
	u32 drain, filling;
	u64 arm;
	struct rw_entry e[RW_MAX]; /* oldest first */
};

/* Answers 0 where the values are none. The window is empty then. */
static int rw_init(struct rw_window *w, u32 size, u32 slots, u32 drain)
{
	if (!size || size > RW_MAX || !slots || slots > size)
		return 0;
	w->size = size;
	w->slots = slots;
	w->drain = drain;
	w->n = 0;
	w->out = 0;
	w->filling = 1;
	w->arm = 0;
	return 1;
}

/* How many more the tree may dispatch. */
static u32 rw_room(struct rw_window *w)
{
	if (!w->n && !w->out)
		w->filling = 1;
	if (w->n + w->out >= w->size)
		return 0;
	return w->drain && !w->filling ? 0 : w->size - w->n - w->out;
}

/* Other sizes; what is in it stays. Answers 0 where the values are none. */
static int rw_resize(struct rw_window *w, u32 size, u32 slots)
{
	if (!size || size > RW_MAX || !slots || slots > size)
		return 0;
	w->size = size;
	w->slots = slots;
	return 1;
}

/* Answers 0 where there is no room. */
static int rw_put(struct rw_window *w, u32 item, u64 sector)
{
	if (!rw_room(w))
		return 0;
	w->e[w->n++] = (struct rw_entry){ .sector = sector, .item = item };
	return 1;
}

/* What the disk should have next; RW_NOTHING: it has enough, or there is none. */
static u32 rw_next(struct rw_window *w)
{
	u32 best = 0, item;

	if (!w->n || w->out >= w->slots)
		return RW_NOTHING;
	if (w->e[0].passed < 2 * w->size) {
		for (u32 k = 1; k < w->n; k++) {
			int later = w->e[k].sector < w->arm, best_later = w->e[best].sector < w->arm;

			if (later != best_later ? best_later : w->e[k].sector < w->e[best].sector)
				best = k;
		}
	}
	item = w->e[best].item;
	w->arm = w->e[best].sector;
	w->n--;
	for (u32 k = best; k < w->n; k++)
		w->e[k] = w->e[k + 1];
	w->out++;
	w->filling = 0;
	return item;
}

/* The disk has completed one. */
static void rw_done(struct rw_window *w)
{
	if (!w->out)
		return;
	w->out--;
	for (u32 k = 0; k < w->n; k++)
		w->e[k].passed++;
}
