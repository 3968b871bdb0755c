# SPDX-License-Identifier: BSD-2-Clause
#
# Fuzz targets. A target is tests/fuzz/TARGET.c, built into tests/fuzz/test_TARGET, which replays its inputs in
# `make check`; `make fuzz` links the same with libFuzzer. Its inputs are in tests/fuzz/corpus/TARGET;
# tests/fuzz/dict/TARGET, if it is there, is its dictionary.

fuzz_tests = \
	tests/fuzz/test_auth \
	tests/fuzz/test_chunk \
	tests/fuzz/test_coded \
	tests/fuzz/test_codec_spec \
	tests/fuzz/test_codec_state \
	tests/fuzz/test_comm \
	tests/fuzz/test_event \
	tests/fuzz/test_frame \
	tests/fuzz/test_gradient \
	tests/fuzz/test_idx \
	tests/fuzz/test_indices \
	tests/fuzz/test_launchers \
	tests/fuzz/test_line_files \
	tests/fuzz/test_options \
	tests/fuzz/test_recorder \
	tests/fuzz/test_root \
	tests/fuzz/test_root_file \
	tests/fuzz/test_shm \
	tests/fuzz/test_shm_view \
	tests/fuzz/test_tcp \
	tests/fuzz/test_trace \
	tests/fuzz/test_tuning \
	tests/fuzz/test_value_coders \
	tests/fuzz/test_values \
	tests/fuzz/test_zstd
fuzz_common = tests/fuzz/fuzz.c tests/fuzz/fuzz.h tests/fuzz/replay.c
fuzz_files = tests/fuzz/files.c tests/fuzz/files.h

tests_fuzz_test_auth_SOURCES = tests/fuzz/auth.c $(fuzz_common)
tests_fuzz_test_chunk_SOURCES = tests/fuzz/chunk.c $(fuzz_common)
tests_fuzz_test_coded_SOURCES = tests/fuzz/coded.c $(fuzz_common)
tests_fuzz_test_codec_spec_SOURCES = tests/fuzz/codec_spec.c $(fuzz_common)
tests_fuzz_test_codec_state_SOURCES = tests/fuzz/codec_state.c $(fuzz_common)
tests_fuzz_test_comm_SOURCES = \
	tests/fuzz/comm.c \
	tests/fuzz/comm.h \
	tests/fuzz/comm_frames.c \
	tests/fuzz/comm_operations.c \
	tests/fuzz/wire.c \
	tests/fuzz/wire.h \
	$(fuzz_common) \
	$(reference)
tests_fuzz_test_event_SOURCES = tests/fuzz/event.c $(fuzz_common)
tests_fuzz_test_frame_SOURCES = tests/fuzz/frame.c $(fuzz_common)
tests_fuzz_test_gradient_SOURCES = tests/fuzz/gradient.c tools/codec/file.c tools/codec/file.h $(fuzz_common)
tests_fuzz_test_idx_SOURCES = \
	examples/digits_draw.c \
	examples/digits_idx.c \
	tests/fuzz/idx.c \
	$(fuzz_common) \
	$(fuzz_files)
tests_fuzz_test_indices_SOURCES = tests/fuzz/indices.c $(fuzz_common)
tests_fuzz_test_launchers_SOURCES = tests/fuzz/launchers.c $(fuzz_common)
tests_fuzz_test_line_files_SOURCES = \
	tests/fuzz/line_files.c \
	tools/run/parse.c \
	$(fuzz_common) \
	$(fuzz_files)
tests_fuzz_test_options_SOURCES = tests/fuzz/options.c $(fuzz_common)
tests_fuzz_test_recorder_SOURCES = tests/fuzz/recorder.c $(fuzz_common)
tests_fuzz_test_recorder_LDADD = tools/libspr-trace.la $(LDADD)
tests_fuzz_test_root_SOURCES = tests/fuzz/root.c $(fuzz_common)
tests_fuzz_test_root_file_SOURCES = tests/fuzz/root_file.c $(fuzz_common)
tests_fuzz_test_shm_SOURCES = tests/fuzz/shm.c $(fuzz_common)
tests_fuzz_test_shm_view_SOURCES = tests/fuzz/shm_view.c $(fuzz_common)
tests_fuzz_test_tcp_SOURCES = tests/fuzz/tcp.c $(fuzz_common)
tests_fuzz_test_trace_SOURCES = tests/fuzz/trace.c tools/perf/trace.c $(fuzz_common) $(fuzz_files)
tests_fuzz_test_tuning_SOURCES = tests/fuzz/tuning.c $(fuzz_common)
tests_fuzz_test_value_coders_SOURCES = tests/fuzz/value_coders.c $(fuzz_common)
tests_fuzz_test_values_SOURCES = tests/fuzz/values.c tools/run/parse.c $(fuzz_common)
tests_fuzz_test_zstd_SOURCES = tests/fuzz/zstd.c $(fuzz_common)

test_programs += $(fuzz_tests)

# Called by `make fuzz` in build-fuzz/ only, with a compiler that has libFuzzer, whose main() takes the place of
# replay.c's.
fuzz-programs:
	$(AM_V_at)$(MAKE) LDFLAGS='$(LDFLAGS) -fsanitize=fuzzer' $(fuzz_tests)
EXTRA_DIST += tests/fuzz/README.md tests/fuzz/run tests/fuzz/untraced tests/fuzz/corpus tests/fuzz/dict
.PHONY: fuzz-programs
