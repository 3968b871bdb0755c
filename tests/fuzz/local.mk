# SPDX-License-Identifier: BSD-2-Clause
#
# Fuzz targets. A target is tests/fuzz/TARGET.c, built twice: test_TARGET replays its inputs in `make check`,
# fuzz_TARGET is the program for libFuzzer. Its inputs are in tests/fuzz/corpus/TARGET; tests/fuzz/dict/TARGET, if it
# is there, is its dictionary.

fuzz_tests =
fuzz_programs =
fuzz_common = tests/fuzz/fuzz.c tests/fuzz/fuzz.h
fuzz_replay = $(fuzz_common) tests/fuzz/replay.c
fuzz_ldflags = $(AM_LDFLAGS) -fsanitize=fuzzer

fuzz_tests += tests/fuzz/test_auth
tests_fuzz_test_auth_SOURCES = tests/fuzz/auth.c $(fuzz_replay)
fuzz_programs += tests/fuzz/fuzz_auth
tests_fuzz_fuzz_auth_SOURCES = tests/fuzz/auth.c $(fuzz_common)
tests_fuzz_fuzz_auth_LDFLAGS = $(fuzz_ldflags)

fuzz_tests += tests/fuzz/test_chunk
tests_fuzz_test_chunk_SOURCES = tests/fuzz/chunk.c $(fuzz_replay)
fuzz_programs += tests/fuzz/fuzz_chunk
tests_fuzz_fuzz_chunk_SOURCES = tests/fuzz/chunk.c $(fuzz_common)
tests_fuzz_fuzz_chunk_LDFLAGS = $(fuzz_ldflags)

fuzz_tests += tests/fuzz/test_codec_spec
tests_fuzz_test_codec_spec_SOURCES = tests/fuzz/codec_spec.c $(fuzz_replay)
fuzz_programs += tests/fuzz/fuzz_codec_spec
tests_fuzz_fuzz_codec_spec_SOURCES = tests/fuzz/codec_spec.c $(fuzz_common)
tests_fuzz_fuzz_codec_spec_LDFLAGS = $(fuzz_ldflags)

fuzz_tests += tests/fuzz/test_codec_state
tests_fuzz_test_codec_state_SOURCES = tests/fuzz/codec_state.c $(fuzz_replay)
fuzz_programs += tests/fuzz/fuzz_codec_state
tests_fuzz_fuzz_codec_state_SOURCES = tests/fuzz/codec_state.c $(fuzz_common)
tests_fuzz_fuzz_codec_state_LDFLAGS = $(fuzz_ldflags)

fuzz_tests += tests/fuzz/test_comm
tests_fuzz_test_comm_SOURCES = tests/fuzz/comm.c tests/fuzz/wire.c tests/fuzz/wire.h tests/reference.c tests/reference.h $(fuzz_replay)
fuzz_programs += tests/fuzz/fuzz_comm
tests_fuzz_fuzz_comm_SOURCES = tests/fuzz/comm.c tests/fuzz/wire.c tests/fuzz/wire.h tests/reference.c tests/reference.h $(fuzz_common)
tests_fuzz_fuzz_comm_LDFLAGS = $(fuzz_ldflags)

fuzz_tests += tests/fuzz/test_event
tests_fuzz_test_event_SOURCES = tests/fuzz/event.c $(fuzz_replay)
fuzz_programs += tests/fuzz/fuzz_event
tests_fuzz_fuzz_event_SOURCES = tests/fuzz/event.c $(fuzz_common)
tests_fuzz_fuzz_event_LDFLAGS = $(fuzz_ldflags)

fuzz_tests += tests/fuzz/test_frame
tests_fuzz_test_frame_SOURCES = tests/fuzz/frame.c $(fuzz_replay)
fuzz_programs += tests/fuzz/fuzz_frame
tests_fuzz_fuzz_frame_SOURCES = tests/fuzz/frame.c $(fuzz_common)
tests_fuzz_fuzz_frame_LDFLAGS = $(fuzz_ldflags)

fuzz_tests += tests/fuzz/test_idx
tests_fuzz_test_idx_SOURCES = tests/fuzz/idx.c examples/digits_draw.c examples/digits_idx.c tests/fuzz/files.c tests/fuzz/files.h $(fuzz_replay)
fuzz_programs += tests/fuzz/fuzz_idx
tests_fuzz_fuzz_idx_SOURCES = tests/fuzz/idx.c examples/digits_draw.c examples/digits_idx.c tests/fuzz/files.c tests/fuzz/files.h $(fuzz_common)
tests_fuzz_fuzz_idx_LDFLAGS = $(fuzz_ldflags)

fuzz_tests += tests/fuzz/test_launchers
tests_fuzz_test_launchers_SOURCES = tests/fuzz/launchers.c $(fuzz_replay)
fuzz_programs += tests/fuzz/fuzz_launchers
tests_fuzz_fuzz_launchers_SOURCES = tests/fuzz/launchers.c $(fuzz_common)
tests_fuzz_fuzz_launchers_LDFLAGS = $(fuzz_ldflags)

fuzz_tests += tests/fuzz/test_options
tests_fuzz_test_options_SOURCES = tests/fuzz/options.c $(fuzz_replay)
fuzz_programs += tests/fuzz/fuzz_options
tests_fuzz_fuzz_options_SOURCES = tests/fuzz/options.c $(fuzz_common)
tests_fuzz_fuzz_options_LDFLAGS = $(fuzz_ldflags)

fuzz_tests += tests/fuzz/test_recorder
tests_fuzz_test_recorder_SOURCES = tests/fuzz/recorder.c $(fuzz_replay)
fuzz_programs += tests/fuzz/fuzz_recorder
tests_fuzz_fuzz_recorder_SOURCES = tests/fuzz/recorder.c $(fuzz_common)
tests_fuzz_fuzz_recorder_LDFLAGS = $(fuzz_ldflags)
tests_fuzz_test_recorder_LDADD = tools/libspr-trace.la $(LDADD)
tests_fuzz_fuzz_recorder_LDADD = tools/libspr-trace.la $(LDADD)

fuzz_tests += tests/fuzz/test_root
tests_fuzz_test_root_SOURCES = tests/fuzz/root.c $(fuzz_replay)
fuzz_programs += tests/fuzz/fuzz_root
tests_fuzz_fuzz_root_SOURCES = tests/fuzz/root.c $(fuzz_common)
tests_fuzz_fuzz_root_LDFLAGS = $(fuzz_ldflags)

fuzz_tests += tests/fuzz/test_root_file
tests_fuzz_test_root_file_SOURCES = tests/fuzz/root_file.c $(fuzz_replay)
fuzz_programs += tests/fuzz/fuzz_root_file
tests_fuzz_fuzz_root_file_SOURCES = tests/fuzz/root_file.c $(fuzz_common)
tests_fuzz_fuzz_root_file_LDFLAGS = $(fuzz_ldflags)

fuzz_tests += tests/fuzz/test_shm
tests_fuzz_test_shm_SOURCES = tests/fuzz/shm.c $(fuzz_replay)
fuzz_programs += tests/fuzz/fuzz_shm
tests_fuzz_fuzz_shm_SOURCES = tests/fuzz/shm.c $(fuzz_common)
tests_fuzz_fuzz_shm_LDFLAGS = $(fuzz_ldflags)

fuzz_tests += tests/fuzz/test_shm_view
tests_fuzz_test_shm_view_SOURCES = tests/fuzz/shm_view.c $(fuzz_replay)
fuzz_programs += tests/fuzz/fuzz_shm_view
tests_fuzz_fuzz_shm_view_SOURCES = tests/fuzz/shm_view.c $(fuzz_common)
tests_fuzz_fuzz_shm_view_LDFLAGS = $(fuzz_ldflags)

fuzz_tests += tests/fuzz/test_tcp
tests_fuzz_test_tcp_SOURCES = tests/fuzz/tcp.c $(fuzz_replay)
fuzz_programs += tests/fuzz/fuzz_tcp
tests_fuzz_fuzz_tcp_SOURCES = tests/fuzz/tcp.c $(fuzz_common)
tests_fuzz_fuzz_tcp_LDFLAGS = $(fuzz_ldflags)

fuzz_tests += tests/fuzz/test_trace
tests_fuzz_test_trace_SOURCES = tests/fuzz/trace.c tools/perf/trace.c tests/fuzz/files.c tests/fuzz/files.h $(fuzz_replay)
fuzz_programs += tests/fuzz/fuzz_trace
tests_fuzz_fuzz_trace_SOURCES = tests/fuzz/trace.c tools/perf/trace.c tests/fuzz/files.c tests/fuzz/files.h $(fuzz_common)
tests_fuzz_fuzz_trace_LDFLAGS = $(fuzz_ldflags)

fuzz_tests += tests/fuzz/test_values
tests_fuzz_test_values_SOURCES = tests/fuzz/values.c tools/run/parse.c $(fuzz_replay)
fuzz_programs += tests/fuzz/fuzz_values
tests_fuzz_fuzz_values_SOURCES = tests/fuzz/values.c tools/run/parse.c $(fuzz_common)
tests_fuzz_fuzz_values_LDFLAGS = $(fuzz_ldflags)

test_programs += $(fuzz_tests)

# Built by `make fuzz` in build-fuzz/ only, with a compiler that has libFuzzer.
EXTRA_PROGRAMS += $(fuzz_programs)
fuzz-programs: $(fuzz_programs)
EXTRA_DIST += tests/fuzz/README.md tests/fuzz/run tests/fuzz/corpus tests/fuzz/dict
.PHONY: fuzz-programs
