/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where a thread asks for more to do: it receives from a socket, by whatever system call (RTSS'98,
 * 4.3). What it wanted before is done, so the request of its queue ends (sched/policy_eevdf.c, rule
 * 3). A round of work that ends because nothing has come yet would be seen without this, for the
 * thread sleeps; one after which more is there already would not.
 *
 * Sending is not asked about: a program that receives, works and answers has one request a round,
 * not two of different lengths.
 *
 * Attached while some scheduler has policy eevdf (crates/plane/src/cpu/full/calls.rs): others'
 * threads do not pay for it. A call that comes while another thread is preempted in here is not
 * seen, which costs one estimate.
 */
SEC("fentry/security_socket_recvmsg")
int BPF_PROG(rc_received)
{
	struct rs_item RS_ARENA *it;

	pl_tree(); /* names the arena */
	it = rc_own(bpf_get_current_task_btf());
	if (it)
		rs_called(it);
	return 0;
}
