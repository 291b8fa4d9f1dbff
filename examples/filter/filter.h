/* SPDX-License-Identifier: MIT */
/* A packet filter language, as a front end in small: docs/tutorial.md explains it step by step. */
#ifndef FILTER_FILTER_H
#define FILTER_FILTER_H

#include <stddef.h>
#include <llvm-c/Core.h>

/* What a filter looks at. Its entry is `unsigned filter(const struct packet *packet)`: 1 lets the packet pass. */
struct packet {
	const unsigned char *bytes;
	size_t len;
};

/*
 *	filter  = or
 *	or      = and { "or" and }
 *	and     = not { "and" not }
 *	not     = "not" not | "(" or ")" | test
 *	test    = "tcp" | "udp" | "icmp" | "ip"
 *	        | ( "src" | "dst" ) ( "host" ADDRESS | "port" NUMBER )
 *	        | "len" ( "<" | ">" ) NUMBER
 *	ADDRESS = NUMBER "." NUMBER "." NUMBER "." NUMBER
 *
 * Adds the function `filter` for the text to module. Packets are Ethernet frames with IPv4; what a test wants to look at and the packet is
 * too short for makes it false. 0, or -1 with a sentence in error.
 */
int filter_compile(const char *text, LLVMModuleRef module, char *error, size_t error_room);

#endif
