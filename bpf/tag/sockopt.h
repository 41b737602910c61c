/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tags of sockets by setsockopt and getsockopt, as QLinux had them: the same rules, rights and
 * errors as those of the fcntl commands, which do not exist where the kernel refuses trampolines.
 * These two programs belong to the full mechanism, their twins in stock.h to the other. They are
 * tied to the root of the cgroups; where that is not mounted, fcntl alone tags sockets.
 */

/* The verifier does not know that every answer is an errno. */
static __always_inline int rt_refuse(int answer)
{
	bpf_set_retval(answer < -4095 || answer > 0 ? -E_INVAL : answer);
	return 0;
}

/* Which queue a call of setsockopt asks for: 0, a negative errno, or 1: it is none of ours. */
static __always_inline int rt_option_set(struct bpf_sockopt *ctx, struct rt_name *name)
{
	struct bpf_sock *sk = ctx->sk;
	int *fd = ctx->optval, answer;

	if (ctx->level != SOL_RESERV || ctx->optname != SO_RESERV_QUEUE)
		return 1;
	if (!sk || (void *)(fd + 1) > ctx->optval_end)
		return -E_INVAL;
	answer = *fd < 0 ? -E_BADF : rt_queue_of(*fd, name);
	if (answer == RT_BY_SHARE)
		answer = rt_share(name->resource, name->node);
	if (!answer)
		answer = rt_sock_lives(RT_CAST(sock, sk), name->resource);
	return answer ? answer : rt_usable(name->resource, name->node);
}

/* Whether getsockopt asks for the queue of a resource: as above. */
static __always_inline int rt_option_get(struct bpf_sockopt *ctx, u32 resource)
{
	struct bpf_sock *sk = ctx->sk;
	int *to = ctx->optval;

	if (ctx->level != SOL_RESERV || resource >= RT_RESOURCES)
		return 1;
	if (!sk || (void *)(to + 1) > ctx->optval_end)
		return -E_INVAL;
	return rt_sock_lives(RT_CAST(sock, sk), resource) ? -E_NOENT : 0;
}

static __always_inline int rt_option_tell(struct bpf_sockopt *ctx, int number)
{
	int *to = ctx->optval;

	if ((void *)(to + 1) > ctx->optval_end)
		return rt_refuse(-E_INVAL);
	*to = number;
	ctx->optlen = sizeof(*to);
	asm volatile("" : : : "memory"); /* two stores: the kernel refuses one over both fields */
	ctx->retval = 0;
	return 1;
}

SEC("cgroup/setsockopt")
int rt_option(struct bpf_sockopt *ctx)
{
	struct rt_name name = {};
	int answer = rt_option_set(ctx, &name);

	if (answer > 0)
		return 1;
	if (!answer)
		answer = rt_sock_tag((u64)RT_CAST(sock, ctx->sk), name.resource, rt_pack(name.node), 0);
	if (answer)
		return rt_refuse(answer);
	ctx->optlen = -1; /* the kernel's own code is not asked */
	return 1;
}

SEC("cgroup/getsockopt")
int rt_option_of(struct bpf_sockopt *ctx)
{
	u32 resource = ctx->optname - SO_RESERV_QUEUE_OF;
	int answer = rt_option_get(ctx, resource);

	if (answer > 0)
		return 1;
	if (answer)
		return rt_refuse(answer);
	return rt_option_tell(ctx, rt_sock_queue(RT_CAST(sock, ctx->sk), resource, false));
}
