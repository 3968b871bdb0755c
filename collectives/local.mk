# SPDX-License-Identifier: BSD-2-Clause

noinst_LTLIBRARIES += collectives/libspr-collectives.la
collectives_libspr_collectives_la_SOURCES = \
	collectives/api.c \
	collectives/barrier.c \
	collectives/barrier.h \
	collectives/choice.c \
	collectives/choice.h \
	collectives/collective.c \
	collectives/collective.h \
	collectives/comm.c \
	collectives/comm.h \
	collectives/create.c \
	collectives/create.h \
	collectives/descriptor.c \
	collectives/descriptor.h \
	collectives/direct.c \
	collectives/direct.h \
	collectives/direct_start.c \
	collectives/dispute.c \
	collectives/dispute.h \
	collectives/failure.c \
	collectives/finite.c \
	collectives/finite.h \
	collectives/flat.c \
	collectives/grow.c \
	collectives/grow.h \
	collectives/grow_members.c \
	collectives/grow_state.c \
	collectives/halves.c \
	collectives/hierarchical.c \
	collectives/links.c \
	collectives/membership.c \
	collectives/membership.h \
	collectives/messages.c \
	collectives/outcome.c \
	collectives/outcome.h \
	collectives/progress.c \
	collectives/query.c \
	collectives/record.c \
	collectives/reduce.c \
	collectives/reduce.h \
	collectives/ring.c \
	collectives/select.c \
	collectives/sendrecv.c \
	collectives/settings.c \
	collectives/shrink.c \
	collectives/sparse.c \
	collectives/sparse.h \
	collectives/sparse_relay.c \
	collectives/sparse_result.c \
	collectives/sparse_start.c \
	collectives/sparse_stream.c \
	collectives/topology.c \
	collectives/topology.h \
	collectives/watch.c \
	collectives/watch.h
