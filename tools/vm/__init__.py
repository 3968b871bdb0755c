# SPDX-License-Identifier: BSD-2-Clause
"""The parts of tools/sparring-vm."""
