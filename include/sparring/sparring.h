/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sparring: dense and sparse allreduce of gradients over shared memory, RDMA and TCP.
 */
#ifndef SPARRING_SPARRING_H
#define SPARRING_SPARRING_H

#include <sparring/bootstrap.h>
#include <sparring/codec.h>
#include <sparring/comm.h>
#include <sparring/dense.h>
#include <sparring/mem.h>
#include <sparring/request.h>
#include <sparring/sparse.h>
#include <sparring/stats.h>
#include <sparring/status.h>
#include <sparring/tune.h>
#include <sparring/types.h>
#include <sparring/version.h>

#endif
