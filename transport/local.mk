# SPDX-License-Identifier: BSD-2-Clause

noinst_LTLIBRARIES += transport/libspr-transport.la
transport_libspr_transport_la_SOURCES =

# Bootstrap: who is in the job, and where.
transport_libspr_transport_la_SOURCES += \
	transport/bootstrap/auth.c \
	transport/bootstrap/auth.h \
	transport/bootstrap/auth_socket.c \
	transport/bootstrap/auth_wire.h \
	transport/bootstrap/bootstrap.h

# Frames, bucket memory.
transport_libspr_transport_la_SOURCES += \
	transport/frame.c \
	transport/frame.h \
	transport/memory.c \
	transport/memory.h

# Shared memory.
transport_libspr_transport_la_SOURCES += \
	transport/shm/connect.c \
	transport/shm/layout.h \
	transport/shm/private.h \
	transport/shm/region.c \
	transport/shm/region.h \
	transport/shm/ring.c \
	transport/shm/shm.c \
	transport/shm/slots.c \
	transport/shm/slots.h \
	transport/shm/socket.c \
	transport/shm/socket.h

if HAVE_URING
transport_libspr_transport_la_SOURCES +=
endif

# The simulated transport is for tests and sparring-sim, never in libsparring.so.
noinst_LTLIBRARIES += transport/libspr-sim.la
transport_libspr_sim_la_SOURCES =
