dnl SPDX-License-Identifier: MIT OR Apache-2.0
dnl What phpize makes a configure of. servers/php/build says where reserv.h and words.h are (CPPFLAGS).
PHP_ARG_ENABLE([reserv], [whether workers of PHP-FPM run in containers of Reserv],
  [AS_HELP_STRING([--enable-reserv], [Enable it])])

if test "$PHP_RESERV" != "no"; then
  PHP_NEW_EXTENSION([reserv], [reserv.c bind.c], [$ext_shared],, [-D_GNU_SOURCE -std=gnu11 -fvisibility=hidden])
fi
