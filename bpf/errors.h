/* SPDX-License-Identifier: GPL-2.0-only */
/* The kernel's error numbers (errno-base.h, errno.h), which its types do not have. */
#ifndef RESERV_ERRORS_H
#define RESERV_ERRORS_H

#define E_NOENT 2
#define E_SRCH 3
#define E_2BIG 7
#define E_BADF 9
#define E_AGAIN 11
#define E_NOMEM 12
#define E_ACCES 13
#define E_FAULT 14
#define E_BUSY 16
#define E_XDEV 18
#define E_ISDIR 21
#define E_INVAL 22
#define E_NOSPC 28
#define E_OPNOTSUPP 95
#define E_TIMEDOUT 110
#define E_STALE 116

#endif
