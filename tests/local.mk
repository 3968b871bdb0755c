# SPDX-License-Identifier: BSD-2-Clause
#
# Add a test: one line in test_programs. Its source is the file of the same name with .c; only a test of several
# files needs a line tests_unit_<name>_SOURCES. Every test is a cmocka program, linked against $(spr_static_libs).
# A shell test goes to test_scripts (ending .sh). Exit 77 = skipped.

LDADD = $(spr_static_libs) $(CMOCKA_LIBS)

test_programs = \
	tests/unit/test_base_cpu \
	tests/unit/test_base_crc32c \
	tests/unit/test_base_fork \
	tests/unit/test_base_log \
	tests/unit/test_base_mem \
	tests/unit/test_base_opt \
	tests/unit/test_base_opt_load \
	tests/unit/test_base_marks \
	tests/unit/test_base_rng \
	tests/unit/test_base_status \
	tests/unit/test_base_trace \
	tests/unit/test_base_workers \
	tests/unit/test_compress_adapt \
	tests/unit/test_compress_blocks \
	tests/unit/test_compress_chunk \
	tests/unit/test_compress_codec \
	tests/unit/test_compress_kernels \
	tests/unit/test_compress_coded \
	tests/unit/test_compress_momentum \
	tests/unit/test_compress_quality \
	tests/unit/test_compress_revoke \
	tests/unit/test_compress_sums \
	tests/unit/test_compress_schedule \
	tests/unit/test_compress_selections \
	tests/unit/test_compress_state \
	tests/unit/test_compress_topk \
	tests/unit/test_compress_workers \
	tests/unit/test_convergence \
	tests/unit/test_convergence_descent \
	tests/unit/test_channel \
	tests/unit/test_channel_priority \
	tests/unit/test_frame \
	tests/unit/test_indices \
	tests/unit/test_indices_golden \
	tests/unit/test_indices_refused \
	tests/unit/test_lowrank \
	tests/unit/test_lowrank_kernels \
	tests/unit/test_lowrank_state \
	tests/unit/test_memory \
	tests/unit/test_racks \
	tests/unit/test_reduce \
	tests/unit/test_select \
	tests/unit/test_select_feedback \
	tests/unit/test_select_kinds \
	tests/unit/test_shares \
	tests/unit/test_topology \
	tests/unit/test_transport_self \
	tests/unit/test_values \
	tests/unit/test_values_bounded \
	tests/unit/test_values_long \
	tests/unit/test_values_meaning
test_scripts =

# Files that several tests share.
bootstrap_ranks = tests/multi/bootstrap_ranks.c tests/multi/bootstrap_ranks.h
job = tests/multi/job.c tests/multi/job.h
reference = tests/reference.c tests/reference.h
sim_world = tests/sim/world.c tests/sim/world.h
vectors = tests/sim/vectors.h $(reference) $(sim_world)
codec_world = tests/sim/codec_world.h $(reference) $(sim_world)
tcp_nodes = tests/multi/tcp_node.c tests/multi/tcp_node.h tests/multi/tcp_world.c tests/multi/tcp_world.h

# Start-up: the handshake, the secret, launchers, ranks that meet.
test_programs += \
	tests/unit/test_auth \
	tests/unit/test_identity \
	tests/unit/test_choice \
	tests/unit/test_link_rates \
	tests/unit/test_outcome \
	tests/unit/test_ranks \
	tests/unit/test_secret \
	tests/multi/test_bootstrap \
	tests/multi/test_bootstrap_faults \
	tests/multi/test_bootstrap_mpirun \
	tests/multi/test_meeting
tests_multi_test_bootstrap_SOURCES = tests/multi/test_bootstrap.c $(bootstrap_ranks)
tests_multi_test_bootstrap_faults_SOURCES = tests/multi/test_bootstrap_faults.c $(bootstrap_ranks)
tests_multi_test_meeting_SOURCES = tests/multi/test_meeting.c $(bootstrap_ranks)

# TCP: the frame state machine, and both twins.
test_programs += \
	tests/unit/test_tcp_conn \
	tests/multi/test_transport_tcp \
	tests/multi/test_transport_tcp_door
tests_multi_test_transport_tcp_SOURCES = tests/multi/test_transport_tcp.c $(tcp_nodes)
tests_multi_test_transport_tcp_door_SOURCES = tests/multi/test_transport_tcp_door.c $(tcp_nodes)
if HAVE_URING
test_programs += tests/multi/test_refused
tests_multi_test_refused_SOURCES = tests/multi/test_refused.c $(job)
test_programs += tests/multi/test_transport_uring
tests_multi_test_transport_uring_SOURCES = tests/multi/test_transport_uring.c $(tcp_nodes)
endif

# What several tests of compress/ share; their data are those of sparring-codec.
EXTRA_DIST += tests/golden/bits_per_element.csv tests/golden/bits_per_index.csv tests/unit/golden.h tests/unit/codec_ranks.h tests/unit/codec_steps.h \
	tests/unit/index_lists.h tests/unit/index_reader.h tests/unit/lowrank_world.h tests/unit/select_call.h \
	tests/unit/simd.h tests/unit/value_cases.h

# Over simulated links.
test_programs += tests/sim/test_allreduce
tests_sim_test_allreduce_SOURCES = tests/sim/test_allreduce.c $(vectors)
test_programs += tests/sim/test_uneven
tests_sim_test_uneven_SOURCES = tests/sim/test_uneven.c $(vectors)
test_programs += tests/sim/test_collectives
tests_sim_test_collectives_SOURCES = tests/sim/test_collectives.c $(vectors)
test_programs += tests/sim/test_model
tests_sim_test_model_SOURCES = tests/sim/test_model.c $(vectors)
test_programs += tests/sim/test_model_choices
tests_sim_test_model_choices_SOURCES = tests/sim/test_model_choices.c $(vectors)
test_programs += tests/sim/test_network
test_programs += tests/sim/test_trials
tests_sim_test_trials_SOURCES = tests/sim/test_trials.c $(sim_world)
test_programs += tests/sim/test_shrink
tests_sim_test_shrink_SOURCES = tests/sim/test_shrink.c $(sim_world)
test_programs += tests/sim/test_calls
tests_sim_test_calls_SOURCES = tests/sim/test_calls.c $(sim_world)
test_programs += tests/sim/test_priority
tests_sim_test_priority_SOURCES = tests/sim/test_priority.c tests/sim/vectors.h $(sim_world)

test_programs += tests/sim/test_rounds
tests_sim_test_rounds_SOURCES = tests/sim/test_rounds.c $(codec_world)
test_programs += tests/sim/test_positions
tests_sim_test_positions_SOURCES = tests/sim/test_positions.c $(codec_world)
test_programs += tests/sim/test_sparse
tests_sim_test_sparse_SOURCES = tests/sim/test_sparse.c tests/sim/sums.h $(vectors)
test_programs += tests/sim/test_sparse_supports
tests_sim_test_sparse_supports_SOURCES = tests/sim/test_sparse_supports.c $(vectors)
test_programs += tests/sim/test_sparse_bytes
tests_sim_test_sparse_bytes_SOURCES = tests/sim/test_sparse_bytes.c tests/sim/sums.h $(vectors)
test_programs += tests/sim/test_sparse_choice
tests_sim_test_sparse_choice_SOURCES = tests/sim/test_sparse_choice.c $(vectors)
test_programs += tests/sim/test_sparse_hosts
tests_sim_test_sparse_hosts_SOURCES = tests/sim/test_sparse_hosts.c $(vectors)
test_programs += tests/sim/test_slots
tests_sim_test_slots_SOURCES = tests/sim/test_slots.c $(vectors)
test_programs += tests/sim/test_sparse_together
tests_sim_test_sparse_together_SOURCES = tests/sim/test_sparse_together.c tests/sim/sums.h $(vectors)
test_programs += tests/sim/test_sums
tests_sim_test_sums_SOURCES = tests/sim/test_sums.c $(codec_world)
test_programs += tests/sim/test_blocks
tests_sim_test_blocks_SOURCES = tests/sim/test_blocks.c $(vectors)
test_programs += tests/sim/test_sums_hosts
tests_sim_test_sums_hosts_SOURCES = tests/sim/test_sums_hosts.c $(codec_world)
test_programs += tests/sim/test_hostile
tests_sim_test_hostile_SOURCES = tests/sim/test_hostile.c tests/sim/hostile.h $(sim_world)
test_programs += tests/sim/test_hostile_sparse
tests_sim_test_hostile_sparse_SOURCES = tests/sim/test_hostile_sparse.c tests/sim/hostile.h $(sim_world)
test_programs += tests/sim/test_sendrecv
tests_sim_test_sendrecv_SOURCES = tests/sim/test_sendrecv.c $(reference) $(sim_world)
schedules = \
	tests/sim/schedule_check.c \
	tests/sim/schedule_codec.c \
	tests/sim/schedule_data.c \
	tests/sim/schedule_play.c \
	tests/sim/schedule_print.c \
	tests/sim/schedule_shrink.c \
	tests/sim/schedules.c \
	tests/sim/schedules.h \
	$(reference) \
	$(sim_world)
test_programs += tests/sim/test_schedules
tests_sim_test_schedules_SOURCES = tests/sim/test_schedules.c $(schedules)
test_programs += tests/sim/test_exhaustive
tests_sim_test_exhaustive_SOURCES = tests/sim/test_exhaustive.c $(schedules)

test_programs += tests/sim/test_verdict
tests_sim_test_verdict_SOURCES = tests/sim/test_verdict.c $(sim_world)
tests_sim_test_verdict_LDADD = tools/libspr-trace.la $(LDADD)

# Real processes.
test_programs += tests/multi/test_job
tests_multi_test_job_SOURCES = tests/multi/test_job.c $(job) $(reference)
test_programs += tests/multi/test_tune
tests_multi_test_tune_SOURCES = tests/multi/test_tune.c $(job)
test_programs += tests/multi/test_decisions
tests_multi_test_decisions_SOURCES = tests/multi/test_decisions.c $(job)
test_programs += tests/multi/test_choose_codec
tests_multi_test_choose_codec_SOURCES = tests/multi/test_choose_codec.c $(job)
test_programs += tests/multi/test_dmabuf
tests_multi_test_dmabuf_SOURCES = tests/multi/test_dmabuf.c $(job)
test_programs += tests/multi/test_poller
tests_multi_test_poller_SOURCES = tests/multi/test_poller.c $(job)
test_programs += tests/multi/test_progress
tests_multi_test_progress_SOURCES = tests/multi/test_progress.c $(job)
test_programs += tests/multi/test_buckets
tests_multi_test_buckets_SOURCES = tests/multi/test_buckets.c $(job)
test_programs += \
	tests/multi/test_guardian \
	tests/multi/test_watch \
	tests/multi/test_watch_mesh \
	tests/unit/test_watch_board \
	tests/unit/test_zstd
tests_multi_test_watch_SOURCES = tests/multi/test_watch.c $(job)
test_programs += tests/multi/test_shrink
tests_multi_test_shrink_SOURCES = tests/multi/test_shrink.c $(job)
test_programs += tests/multi/test_split
tests_multi_test_split_SOURCES = tests/multi/test_split.c $(job)
grow = tests/multi/grow.c tests/multi/grow.h $(job)
test_programs += tests/multi/test_grow
tests_multi_test_grow_SOURCES = tests/multi/test_grow.c $(grow)
test_programs += tests/multi/test_leaving
tests_multi_test_leaving_SOURCES = tests/multi/test_leaving.c $(job)
test_programs += tests/multi/test_matrix
tests_multi_test_matrix_SOURCES = tests/multi/test_matrix.c $(job) $(reference)
test_programs += tests/multi/test_steady
tests_multi_test_steady_SOURCES = tests/multi/test_steady.c $(job) $(reference)

# Run at length by `make soak`, which sets SPARRING_SOAK=1.
soak_programs = tests/sim/test_schedules

# Faults in real processes.
faults = tests/multi/faults.c tests/multi/faults.h $(job)
test_programs += tests/multi/test_faults_kill
tests_multi_test_faults_kill_SOURCES = tests/multi/test_faults_kill.c $(faults)
soak_programs += tests/multi/test_faults_kill
test_programs += tests/multi/test_memory
tests_multi_test_memory_SOURCES = tests/multi/test_memory.c $(faults) $(reference)
soak_programs += tests/multi/test_memory
test_programs += tests/multi/test_grow_faults
tests_multi_test_grow_faults_SOURCES = \
	tests/multi/faults.c \
	tests/multi/faults.h \
	tests/multi/test_grow_faults.c \
	$(grow)
soak_programs += tests/multi/test_grow_faults
test_programs += tests/multi/test_sendrecv
tests_multi_test_sendrecv_SOURCES = tests/multi/test_sendrecv.c $(job) $(reference)
test_programs += tests/multi/test_nonfinite
tests_multi_test_nonfinite_SOURCES = tests/multi/test_nonfinite.c $(faults) $(reference)
test_programs += tests/multi/test_faults_network
tests_multi_test_faults_network_SOURCES = tests/multi/test_faults_network.c $(faults)
soak_programs += tests/multi/test_faults_network
test_programs += tests/multi/test_faults_hosts
network = \
	tests/multi/network.c \
	tests/multi/network.h \
	tools/run/emulate.c \
	tools/run/emulate.h \
	tools/run/output.c \
	tools/run/output.h \
	tools/run/privilege.c \
	tools/run/privilege.h \
	$(faults)
tests_multi_test_faults_hosts_SOURCES = tests/multi/test_faults_hosts.c $(network)
soak_programs += tests/multi/test_faults_hosts
test_programs += tests/multi/test_options
tests_multi_test_options_SOURCES = tests/multi/test_options.c $(network)
test_programs += tests/multi/test_faults_strangers
tests_multi_test_faults_strangers_SOURCES = tests/multi/test_faults_strangers.c $(faults)
soak_programs += tests/multi/test_faults_strangers
test_programs += tests/multi/test_faults_surroundings
tests_multi_test_faults_surroundings_SOURCES = tests/multi/test_faults_surroundings.c $(faults)
soak_programs += tests/multi/test_faults_surroundings
test_programs += tests/multi/test_forks
tests_multi_test_forks_SOURCES = tests/multi/test_forks.c $(faults)
soak_programs += tests/multi/test_forks
test_programs += tests/multi/test_faults_torture
torture = \
	tests/multi/failing.c \
	tests/multi/failing.h \
	tests/multi/torture.c \
	tests/multi/torture.h \
	$(faults)
failing_wraps = \
	-Wl,--wrap=accept4 -Wl,--wrap=bind -Wl,--wrap=connect -Wl,--wrap=epoll_create1 -Wl,--wrap=epoll_ctl \
	-Wl,--wrap=eventfd -Wl,--wrap=fcntl -Wl,--wrap=ftruncate -Wl,--wrap=getifaddrs -Wl,--wrap=getrandom \
	-Wl,--wrap=io_uring_queue_init_params -Wl,--wrap=io_uring_register -Wl,--wrap=listen \
	-Wl,--wrap=memfd_create -Wl,--wrap=mmap -Wl,--wrap=open -Wl,--wrap=pthread_create -Wl,--wrap=recvmsg \
	-Wl,--wrap=sendmsg -Wl,--wrap=socket -Wl,--wrap=timerfd_create
tests_multi_test_faults_torture_SOURCES = tests/multi/test_faults_torture.c $(torture)
tests_multi_test_faults_torture_LDFLAGS = $(AM_LDFLAGS) $(failing_wraps)
test_programs += tests/multi/test_grow_torture
tests_multi_test_grow_torture_SOURCES = \
	tests/multi/grow.c \
	tests/multi/grow.h \
	tests/multi/test_grow_torture.c \
	$(torture)
tests_multi_test_grow_torture_LDFLAGS = $(AM_LDFLAGS) $(failing_wraps)
test_programs += tests/multi/test_split_torture
tests_multi_test_split_torture_SOURCES = tests/multi/test_split_torture.c $(torture)
tests_multi_test_split_torture_LDFLAGS = $(AM_LDFLAGS) $(failing_wraps)

# The same, of several files.
test_programs += \
	tests/multi/test_transport_shm \
	tests/multi/test_transport_shm_connect \
	tests/multi/test_transport_shm_hostile \
	tests/multi/test_transport_shm_processes
shm_node = tests/multi/shm_node.c tests/multi/shm_node.h
tests_multi_test_transport_shm_SOURCES = tests/multi/test_transport_shm.c $(shm_node)
tests_multi_test_transport_shm_connect_SOURCES = tests/multi/test_transport_shm_connect.c $(shm_node)
tests_multi_test_transport_shm_hostile_SOURCES = tests/multi/test_transport_shm_hostile.c $(shm_node)
tests_multi_test_transport_shm_processes_SOURCES = tests/multi/test_transport_shm_processes.c $(shm_node)

# These run the programs of tools/, so they need nothing of the library.
test_programs += tests/cli/test_sparring_run tests/cli/test_sparring_run_hosts
shell_line = tests/cli/shell_line.c tests/cli/shell_line.h
tests_cli_test_sparring_run_SOURCES = tests/cli/test_sparring_run.c $(shell_line)
tests_cli_test_sparring_run_LDADD = $(CMOCKA_LIBS)
tests_cli_test_sparring_run_hosts_SOURCES = tests/cli/test_sparring_run_hosts.c $(shell_line)
tests_cli_test_sparring_run_hosts_LDADD = $(CMOCKA_LIBS)
test_programs += tests/cli/test_tool_output
tests_cli_test_tool_output_SOURCES = tests/cli/test_tool_output.c $(shell_line)
tests_cli_test_tool_output_LDADD = $(CMOCKA_LIBS)
# ... but for this one, which keeps a recorder as a rank does.
test_programs += tests/cli/test_sparring_run_restart
tests_cli_test_sparring_run_restart_SOURCES = tests/cli/test_sparring_run_restart.c $(shell_line)
test_programs += tests/unit/test_firewall
tests_unit_test_firewall_SOURCES = tests/unit/test_firewall.c tools/info/firewall.c tools/info/firewall.h
test_programs += tests/unit/test_codec_predict
tests_unit_test_codec_predict_SOURCES = tests/unit/test_codec_predict.c tools/codec/predict.c tools/codec/predict.h
tests_unit_test_codec_predict_LDADD = $(CMOCKA_LIBS) -lm
test_programs += tests/unit/test_codec_bits
tests_unit_test_codec_bits_SOURCES = tests/unit/test_codec_bits.c tests/unit/golden.h tools/codec/subject.c \
	tools/codec/subject.h tools/codec/wire.c tools/codec/wire.h
test_programs += tests/unit/test_compress_contract
tests_unit_test_compress_contract_SOURCES = tests/unit/test_compress_contract.c tools/codec/subject.c \
	tools/codec/subject.h tools/codec/wire.c tools/codec/wire.h
test_programs += tests/unit/test_sim_check
tests_unit_test_sim_check_SOURCES = tests/unit/test_sim_check.c tools/codec_spec.c tools/codec_spec.h tools/perf/data.c \
	tools/perf/data.h tools/perf/support.c tools/perf/support.h tools/sim/check.c tools/sim/input.c tools/sim/input.h
test_programs += tests/cli/test_sparring_info
tests_cli_test_sparring_info_SOURCES = tests/cli/test_sparring_info.c $(shell_line)
tests_cli_test_sparring_info_LDADD = $(CMOCKA_LIBS)
test_programs += tests/cli/test_sparring_vm
tests_cli_test_sparring_vm_SOURCES = tests/cli/test_sparring_vm.c $(shell_line)
tests_cli_test_sparring_vm_LDADD = $(CMOCKA_LIBS)
test_programs += tests/cli/test_sparring_trace
perf_line = tests/cli/perf_line.c tests/cli/perf_line.h $(shell_line)
test_programs += tests/cli/test_sparring_perf
tests_cli_test_sparring_perf_SOURCES = tests/cli/test_sparring_perf.c $(perf_line)
tests_cli_test_sparring_perf_LDADD = $(CMOCKA_LIBS)
test_programs += tests/cli/test_sparring_perf_compressed
tests_cli_test_sparring_perf_compressed_SOURCES = tests/cli/test_sparring_perf_compressed.c $(perf_line)
tests_cli_test_sparring_perf_compressed_LDADD = $(CMOCKA_LIBS)
test_programs += tests/cli/test_sparring_perf_elastic
tests_cli_test_sparring_perf_elastic_SOURCES = tests/cli/test_sparring_perf_elastic.c $(perf_line)
tests_cli_test_sparring_perf_elastic_LDADD = $(CMOCKA_LIBS)
test_scripts += tests/cli/test_acceptance.sh tests/cli/test_bench_verbs.sh tests/cli/test_compare.sh \
	tests/cli/test_sparring_codec.sh tests/cli/test_sparring_sim.sh tests/cli/test_sparring_tune.sh \
	tests/cli/test_train_digits.sh
test_scripts += tests/multi/test_lanes.sh
EXTRA_DIST += tests/cli/tool.sh

# Only by `make check-vm`: VM_TESTS in a virtual machine that has soft-RoCE, one after the other in one boot; VM_HOST_TESTS here,
# they boot guests themselves. vm_programs are built for that; VM_TESTS can also name programs of test_programs.
vm_programs = tests/vm/test_sparring_vm
vm_scripts = tests/vm/test_soft_roce.sh tests/vm/test_sparring_info.sh tests/vm/test_verbs.sh
VM_TESTS = tests/vm/test_soft_roce.sh
VM_HOST_TESTS = tests/vm/test_sparring_vm
tests_vm_test_sparring_vm_SOURCES = tests/vm/test_sparring_vm.c $(shell_line)
tests_vm_test_sparring_vm_LDADD = $(CMOCKA_LIBS)
if HAVE_VERBS
vm_programs += tests/vm/test_verbs_faults
VM_TESTS += tests/vm/test_sparring_info.sh tests/vm/test_verbs_faults tests/vm/test_verbs.sh
VM_HOST_TESTS += tests/vm/test_verbs_hosts.sh
tests_vm_test_verbs_faults_SOURCES = tests/vm/test_verbs_faults.c $(tcp_nodes)
vm_programs += tests/vm/test_verbs_lanes
tests_vm_test_verbs_lanes_SOURCES = tests/vm/test_verbs_lanes.c $(tcp_nodes) $(job)
vm_programs += tests/vm/test_verbs_cm
VM_TESTS += tests/vm/test_verbs_cm
tests_vm_test_verbs_cm_SOURCES = tests/vm/test_verbs_cm.c $(tcp_nodes)
vm_programs += tests/vm/test_verbs_options
VM_TESTS += tests/vm/test_verbs_options
tests_vm_test_verbs_options_SOURCES = tests/vm/test_verbs_options.c $(tcp_nodes)
# Run by test_verbs_hosts.sh.
vm_programs += tests/vm/two_communicators
tests_vm_two_communicators_SOURCES = tests/vm/two_communicators.c
endif
EXTRA_DIST += tests/vm/run tests/vm/test_verbs_hosts.sh $(vm_scripts)

if HAVE_CMOCKA
check_PROGRAMS += $(test_programs) $(vm_programs)
TESTS += $(test_programs)
endif
TESTS += $(test_scripts)
EXTRA_DIST += $(test_scripts)

# Every test runs under a hard limit (tests/run-test).
TEST_EXTENSIONS = .sh
LOG_COMPILER = $(top_srcdir)/tests/run-test
SH_LOG_COMPILER = $(top_srcdir)/tests/run-test
AM_TESTS_ENVIRONMENT = \
	top_srcdir='$(abs_top_srcdir)'; export top_srcdir; \
	top_builddir='$(abs_top_builddir)'; export top_builddir;
EXTRA_DIST += tests/run-test

# ---- Other checks (targets in Makefile.am) -------------------------------------------------------
EXTRA_DIST += \
	tests/installed/check \
	tests/installed/consumer.c \
	tests/summary \
	tests/valgrind \
	tests/variant \
	tests/lint/analyzer.sh \
	tests/lint/banned.sh \
	tests/lint/clang.sh \
	tests/lint/cppcheck.sh \
	tests/lint/cppcheck.suppress \
	tests/lint/docs.sh \
	tests/lint/files.sh \
	tests/lint/format.sh \
	tests/lint/headers.sh \
	tests/lint/includes.sh \
	tests/lint/length.sh \
	tests/lint/lib.sh \
	tests/lint/man.sh \
	tests/lint/map.sh \
	tests/lint/python.sh \
	tests/lint/run \
	tests/lint/shell.sh \
	tests/lint/spelling.ignore \
	tests/lint/spelling.sh \
	tests/lint/tidy.sh \
	tests/lint/vex.sh
