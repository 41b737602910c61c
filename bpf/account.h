/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whose something is that has a quota for each user: the real user's; in a user name space that
 * of who made the outermost one, for numbers cost nothing there, unless root did (then the
 * numbers are root's to give). 0 is root, who has none.
 */
#ifndef RESERV_ACCOUNT_H
#define RESERV_ACCOUNT_H

#define ACCOUNT_DEPTH 40 /* more than the kernel nests user name spaces */
#define ACCOUNT_RESERVE_PART 16 /* a sixteenth of all is root's alone */

static __noinline u32 account_of(const struct cred *cred)
{
	struct user_namespace *ns = cred->user_ns;
	u32 uid = cred->uid.val, owner;
	int i;

	if (!ns->level)
		return uid;
	bpf_for(i, 0, ACCOUNT_DEPTH) {
		if (ns->level <= 1)
			break;
		ns = ns->parent;
	}
	owner = ns->owner.val;
	return owner ? owner : uid;
}

#endif
