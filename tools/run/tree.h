/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The tree of processes below this one. The caller is a child subreaper, so a process that lost its
 * parent is still in the tree, whatever session or process group it moved to.
 */
#ifndef TOOLS_RUN_TREE_H
#define TOOLS_RUN_TREE_H

/* Sends a signal to every process below this one. Returns how many got it. A process that forks
 * meanwhile can be missed: call again until there are no children to wait for. */
int tree_signal(int signal);

#endif
