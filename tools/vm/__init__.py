# SPDX-License-Identifier: BSD-2-Clause
"""The parts of tools/sparring-vm."""
VERSION = "0.1.0"
