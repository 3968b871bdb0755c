# SPDX-License-Identifier: BSD-2-Clause

noinst_LTLIBRARIES += transport/libspr-transport.la
transport_libspr_transport_la_SOURCES =

# Bootstrap: who is in the job, and where.
transport_libspr_transport_la_SOURCES += \
	transport/bootstrap/auth.c \
	transport/bootstrap/auth.h \
	transport/bootstrap/auth_socket.c \
	transport/bootstrap/auth_wire.h \
	transport/bootstrap/bootstrap.c \
	transport/bootstrap/bootstrap.h \
	transport/bootstrap/identity.c \
	transport/bootstrap/identity.h \
	transport/bootstrap/launchers.c \
	transport/bootstrap/meeting.c \
	transport/bootstrap/meeting.h \
	transport/bootstrap/pmix.c \
	transport/bootstrap/pmix.h \
	transport/bootstrap/ranks.c \
	transport/bootstrap/ranks.h \
	transport/bootstrap/root.c \
	transport/bootstrap/root.h \
	transport/bootstrap/root_address.c \
	transport/bootstrap/root_address.h \
	transport/bootstrap/root_client.c \
	transport/bootstrap/root_conn.c \
	transport/bootstrap/root_conn.h \
	transport/bootstrap/root_door.c \
	transport/bootstrap/root_file.c \
	transport/bootstrap/root_file.h \
	transport/bootstrap/root_gather.c \
	transport/bootstrap/root_server.c \
	transport/bootstrap/root_socket.c \
	transport/bootstrap/root_tcp.c \
	transport/bootstrap/root_wire.h \
	transport/bootstrap/secret.c \
	transport/bootstrap/secret.h \
	transport/bootstrap/single.c

# Tagged messages over links, frames, bucket memory, options.
transport_libspr_transport_la_SOURCES += \
	transport/channel.c \
	transport/channel.h \
	transport/channel_early.c \
	transport/channel_held.c \
	transport/channel_private.h \
	transport/channel_receive.c \
	transport/channel_stop.c \
	transport/frame.c \
	transport/frame.h \
	transport/memory.c \
	transport/memory.h \
	transport/options.c \
	transport/options.h \
	transport/transport.h

# Who lives.
transport_libspr_transport_la_SOURCES += \
	transport/watch/board.c \
	transport/watch/board.h \
	transport/watch/guardian.c \
	transport/watch/guardian.h \
	transport/watch/look.c \
	transport/watch/mesh.c \
	transport/watch/mesh.h \
	transport/watch/private.h \
	transport/watch/watch.c \
	transport/watch/watch.h

# A rank to itself.
transport_libspr_transport_la_SOURCES += transport/self/self.c

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

# TCP: what both twins share, and the epoll twin.
transport_libspr_transport_la_SOURCES += \
	transport/epoll/epoll.c \
	transport/lanes/lanes.c \
	transport/lanes/lanes.h \
	transport/lanes/link.c \
	transport/lanes/private.h \
	transport/lanes/send.c \
	transport/tcp/accept.c \
	transport/tcp/address.c \
	transport/tcp/address.h \
	transport/tcp/conn.c \
	transport/tcp/conn.h \
	transport/tcp/dial.c \
	transport/tcp/handshake.c \
	transport/tcp/interface.c \
	transport/tcp/interface.h \
	transport/tcp/rate.c \
	transport/tcp/rate.h \
	transport/tcp/socket.c \
	transport/tcp/tcp.c \
	transport/tcp/tcp.h

if HAVE_URING
transport_libspr_transport_la_SOURCES += \
	transport/uring/data.c \
	transport/uring/ring.c \
	transport/uring/survey.h \
	transport/uring/uring.c \
	transport/uring/uring.h \
	transport/uring/zerocopy.c
endif

# RDMA.
if HAVE_VERBS
transport_libspr_transport_la_SOURCES += \
	transport/verbs/address.c \
	transport/verbs/cm.c \
	transport/verbs/cm_link.c \
	transport/verbs/connect.c \
	transport/verbs/device.c \
	transport/verbs/fault.c \
	transport/verbs/gids.c \
	transport/verbs/gids.h \
	transport/verbs/memory.c \
	transport/verbs/queue.c \
	transport/verbs/rate.c \
	transport/verbs/rate.h \
	transport/verbs/receive.c \
	transport/verbs/region.c \
	transport/verbs/send.c \
	transport/verbs/survey.h \
	transport/verbs/verbs.c \
	transport/verbs/verbs.h \
	transport/verbs/wire.h
endif

# The simulated transport is for tests and sparring-sim, never in libsparring.so.
noinst_LTLIBRARIES += transport/libspr-sim.la
transport_libspr_sim_la_SOURCES = \
	transport/sim/choice.c \
	transport/sim/faults.c \
	transport/sim/link.c \
	transport/sim/private.h \
	transport/sim/sim.c \
	transport/sim/sim.h \
	transport/sim/wire.c
