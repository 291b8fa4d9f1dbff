/* SPDX-License-Identifier: MIT */
/*
 * BPF programs as LLVM IR (clang -target bpf -emit-llvm, any -O): LLVM's own BPF code generator makes the object of them that clang -c would
 * have made, and that is opened like any other. So map definitions (from the debug information), sections, CO-RE relocations, inline
 * BPF assembly and accesses to the context mean the same in IR and in an object, and one front end knows what they mean.
 */
#ifndef LIB_BPF_FROM_IR_H
#define LIB_BPF_FROM_IR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bitcode by its magic, text by the end of its name (.ll) or by how it begins. */
bool bpf_is_ir(const void *bytes, size_t len, const char *name);

/*
 * The ELF object of an IR module, which the caller frees. Compiled in a child process, because LLVM ends the process over some input that
 * it does not like: what happens there cannot reach the caller, and a child that takes over two minutes is killed. The child is forked and
 * uses LLVM, so a thread of the caller's that holds one of LLVM's locks at that moment makes it wait for ever: a child that uses no CPU for
 * two seconds is replaced by another.
 * -EINVAL: not a BPF module, or one that LLVM refuses or fails over (the reason in shunt_error()); -ETIMEDOUT, -ENOMEM, or fork's error.
 */
int bpf_from_ir(const void *bytes, size_t len, const char *name, uint8_t **out, size_t *out_len);

#endif
