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

fuzz_tests += tests/fuzz/test_frame
tests_fuzz_test_frame_SOURCES = tests/fuzz/frame.c $(fuzz_replay)
fuzz_programs += tests/fuzz/fuzz_frame
tests_fuzz_fuzz_frame_SOURCES = tests/fuzz/frame.c $(fuzz_common)
tests_fuzz_fuzz_frame_LDFLAGS = $(fuzz_ldflags)

fuzz_tests += tests/fuzz/test_options
tests_fuzz_test_options_SOURCES = tests/fuzz/options.c $(fuzz_replay)
fuzz_programs += tests/fuzz/fuzz_options
tests_fuzz_fuzz_options_SOURCES = tests/fuzz/options.c $(fuzz_common)
tests_fuzz_fuzz_options_LDFLAGS = $(fuzz_ldflags)

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
