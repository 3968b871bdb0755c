dnl SPDX-License-Identifier: BSD-2-Clause
dnl
dnl SPR_CHECK_PKG(VAR, yes|no|check, PKG-CONFIG SPEC, DEBIAN PACKAGE, OPTION)
dnl Looks for a package as asked. "yes" and missing is an error, "check" takes what is there.
dnl Sets have_<var> to yes or no, VAR_CFLAGS and VAR_LIBS, the conditional HAVE_VAR and the macro HAVE_VAR.
AC_DEFUN([SPR_CHECK_PKG], [
  m4_pushdef([have], [have_]m4_tolower([$1]))
  have=no
  AS_CASE([$2],
    [no], [],
    [yes|check], [
      PKG_CHECK_MODULES([$1], [$3], [have=yes], [
        AS_IF([test "$2" = yes],
          [AC_MSG_ERROR([$5 was asked for, but $3 is missing (Debian: $4): $$1_PKG_ERRORS])])])],
    [AC_MSG_ERROR([$5 takes yes, no or check, not "$2"])])
  AS_IF([test "$have" = yes],
    [AC_DEFINE([HAVE_$1], [1], [Define to 1 if $3 is available.])],
    [$1_CFLAGS= $1_LIBS=])
  AM_CONDITIONAL([HAVE_$1], [test "$have" = yes])
  m4_popdef([have])
])

dnl SPR_WITH_PKG(NAME, VAR, PKG-CONFIG SPEC, DEBIAN PACKAGE, PURPOSE): --with-NAME=yes|no|check
AC_DEFUN([SPR_WITH_PKG], [
  AC_ARG_WITH([$1],
    [AS_HELP_STRING([--with-$1], [$5: yes, no or check @<:@check@:>@])],
    [], [with_$1=check])
  SPR_CHECK_PKG([$2], [$with_$1], [$3], [$4], [--with-$1])
])
