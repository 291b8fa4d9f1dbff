/* SPDX-License-Identifier: MIT */
/*
 * Every instruction that the encoders know, one a line: assembler text, bytes, call. One test compares the bytes, another one asks
 * LLVM's disassembler for the text.
 */
#ifndef TEST_ENCODE_ENCODINGS_H
#define TEST_ENCODE_ENCODINGS_H

#include "targets/code.h"

#define ENCODING_ADDR UINT64_C(0x400000) /* where each instruction is encoded for */
#define ENCODING_MAX 32u

typedef void encoding_check(const char *text, const char *hex, const struct shunt_code *code);

void x86_64_for_each_encoding(encoding_check *check);
void arm64_for_each_encoding(encoding_check *check);

/* To be used in a function that has `check`: the call names the buffer `c`. */
#define ENCODING(text, hex, call)                                             \
	do {                                                                  \
		uint8_t bytes_[ENCODING_MAX];                                 \
		struct shunt_code code_, *c = &code_;                         \
		shunt_code_init(c, bytes_, sizeof(bytes_), ENCODING_ADDR);    \
		call;                                                         \
		check(text, hex, c);                                          \
	} while (0)

#endif
