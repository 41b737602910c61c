// SPDX-License-Identifier: GPL-2.0-only
/* What tagsim.c, which plays the kernel, and cpusim.c, the CPU's programs, know of each other. */
#ifndef TAGSIM_H
#define TAGSIM_H
/* `memory`: what a map that is mapped lies in, else -1 */
struct native_map *cpu_map(const char *name, int *memory);
int (*cpu_call(const char *name))(void *);
void native_prepare(struct native_map *map);
u32 native_copies(u32 most);
int cpu_begin(struct task_struct *p, bool fork);
void cpu_forked(struct task_struct *parent, struct task_struct *child);
void cpu_execed(struct task_struct *p, s32 before);
void cpu_exited(struct task_struct *p);
void cpu_end(struct task_struct *p);
int cpu_fcntl(struct file *file, u32 command, u64 argument);
#endif
