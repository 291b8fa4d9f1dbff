/* SPDX-License-Identifier: MIT */
/* LLVM's part of from_ir.h, which runs in the child: nothing here calls back into the host, and nothing is freed, as the child ends. */
#ifndef LIB_BPF_IR_COMPILE_H
#define LIB_BPF_IR_COMPILE_H

#include <stddef.h>
#include <llvm-c/Types.h>

#define BPF_IR_SENTENCE 4096u /* of a reason, terminator included */

/* The object of a module, or a negative errno with the reason in *why, which is static. LLVM may end the process instead. */
int bpf_ir_compile(const void *bytes, size_t len, const char *name, LLVMMemoryBufferRef *object, const char **why);

#endif
