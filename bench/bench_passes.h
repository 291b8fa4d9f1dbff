/* SPDX-License-Identifier: MIT */
/* What the files of bench_passes share. */
#ifndef BENCH_PASSES_H
#define BENCH_PASSES_H

#include <stddef.h>
#include <llvm-c/Types.h>

double bench_now(void); /* seconds of this thread's CPU time: what else the machine does is not in it */
void bench_stop(const char *what, const char *why) __attribute__((noreturn));
LLVMModuleRef bench_parse(LLVMContextRef context, const char *text, size_t len);
void bench_run_llvm(LLVMModuleRef module, const char *pipeline);

/* passes_targets.c: calls with known targets. */
void bench_targets(size_t rounds);

#endif
