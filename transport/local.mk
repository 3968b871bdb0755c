# SPDX-License-Identifier: BSD-2-Clause

noinst_LTLIBRARIES += transport/libspr-transport.la
transport_libspr_transport_la_SOURCES =

if HAVE_URING
transport_libspr_transport_la_SOURCES +=
endif

# The simulated transport is for tests and sparring-sim, never in libsparring.so.
noinst_LTLIBRARIES += transport/libspr-sim.la
transport_libspr_sim_la_SOURCES =
