/* SPDX-License-Identifier: MIT */
/* Parses the language and emits LLVM IR as it goes: each rule of the grammar is a function that returns an i1. */
#include "filter.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <shunt/abi.h>

enum {
	ETHERTYPE_AT = 12,
	ETHERTYPE_IPV4 = 0x0800,
	IP_AT = 14,
	PROTOCOL_AT = IP_AT + 9,
	SOURCE_AT = IP_AT + 12,
	DESTINATION_AT = IP_AT + 16,
	IP_END = IP_AT + 20,
	MAX_DEPTH = 64,
};

struct filter {
	const char *at; /* what is not read yet */
	LLVMContextRef context;
	LLVMModuleRef module;
	LLVMBuilderRef builder;
	LLVMValueRef function, bytes, len;
	LLVMTypeRef i1, i8, i16, i32, i64, ptr;
	int depth;
	bool failed;
	char *error;
	size_t error_room;
};

static LLVMValueRef fail(struct filter *filter, const char *format, ...)
{
	va_list args;

	if (!filter->failed) {
		va_start(args, format);
		vsnprintf(filter->error, filter->error_room, format, args);
		va_end(args);
	}
	filter->failed = true;
	return LLVMConstNull(filter->i1);
}

/* ---- words ---------------------------------------------------------------------------------------------------- */

static void skip_space(struct filter *filter)
{
	while (isspace((unsigned char)*filter->at))
		filter->at++;
}

static bool take(struct filter *filter, const char *word)
{
	size_t len = strlen(word);

	skip_space(filter);
	if (strncmp(filter->at, word, len) || (isalpha((unsigned char)*word) && isalnum((unsigned char)filter->at[len])))
		return false;
	filter->at += len;
	return true;
}

static unsigned long take_number(struct filter *filter, unsigned long most)
{
	char *end;
	unsigned long number;

	skip_space(filter);
	number = strtoul(filter->at, &end, 0);
	if (!isdigit((unsigned char)*filter->at) || number > most) {
		fail(filter, "a number from 0 to %lu was expected at '%.20s'", most, filter->at);
		return 0;
	}
	filter->at = end;
	return number;
}

static unsigned long take_address(struct filter *filter)
{
	unsigned long address = 0;

	for (int i = 0; i < 4; i++) {
		if (i && !take(filter, "."))
			fail(filter, "an address such as 10.0.0.1 was expected at '%.20s'", filter->at);
		address = address << 8 | take_number(filter, 255);
	}
	return address;
}

/* ---- emitting ------------------------------------------------------------------------------------------------- */

static LLVMValueRef number(LLVMTypeRef type, unsigned long long value)
{
	return LLVMConstInt(type, value, 0);
}

/* The big-endian field of type at byte `at` (an i64). */
static LLVMValueRef load(struct filter *filter, LLVMTypeRef type, LLVMValueRef at)
{
	LLVMValueRef pointer = LLVMBuildGEP2(filter->builder, filter->i8, filter->bytes, &at, 1, "");
	LLVMValueRef value = LLVMBuildLoad2(filter->builder, type, pointer, "");
	unsigned swap = LLVMLookupIntrinsicID("llvm.bswap", strlen("llvm.bswap"));

	LLVMSetAlignment(value, 1);
	if (type != filter->i8) {
		LLVMValueRef intrinsic = LLVMGetIntrinsicDeclaration(filter->module, swap, &type, 1);

		value = LLVMBuildCall2(filter->builder, LLVMGlobalGetValueType(intrinsic), intrinsic, &value, 1, "");
	}
	return value;
}

typedef LLVMValueRef emit_fn(struct filter *filter, const void *what);

/* first && second, where second is emitted into a block of its own that runs only if first holds; or else first || second. */
static LLVMValueRef emit_short_circuit(struct filter *filter, LLVMValueRef first, bool is_and, emit_fn *second, const void *what)
{
	LLVMBasicBlockRef from = LLVMGetInsertBlock(filter->builder), end, blocks[2];
	LLVMBasicBlockRef more = LLVMAppendBasicBlockInContext(filter->context, filter->function, "more");
	LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(filter->context, filter->function, "done");
	LLVMValueRef values[2] = { number(filter->i1, !is_and) }, phi;

	LLVMBuildCondBr(filter->builder, first, is_and ? more : done, is_and ? done : more);
	LLVMPositionBuilderAtEnd(filter->builder, more);
	values[1] = second(filter, what);
	end = LLVMGetInsertBlock(filter->builder);
	LLVMBuildBr(filter->builder, done);
	LLVMPositionBuilderAtEnd(filter->builder, done);
	phi = LLVMBuildPhi(filter->builder, filter->i1, "");
	blocks[0] = from;
	blocks[1] = end;
	LLVMAddIncoming(phi, values, blocks, 2);
	return phi;
}

static LLVMValueRef emit_equal(struct filter *filter, LLVMTypeRef type, unsigned at, unsigned long value)
{
	return LLVMBuildICmp(filter->builder, LLVMIntEQ, load(filter, type, number(filter->i64, at)), number(type, value), "");
}

static LLVMValueRef emit_is_ip(struct filter *filter, const void *what)
{
	return emit_equal(filter, filter->i16, ETHERTYPE_AT, ETHERTYPE_IPV4);
}

/* The packet is long enough, and IPv4. */
static LLVMValueRef emit_ip(struct filter *filter)
{
	LLVMValueRef is_long = LLVMBuildICmp(filter->builder, LLVMIntUGE, filter->len, number(filter->i64, IP_END), "");

	return emit_short_circuit(filter, is_long, true, emit_is_ip, NULL);
}

struct field {
	unsigned at;
	unsigned long value;
};

static LLVMValueRef emit_protocol(struct filter *filter, const void *what)
{
	const struct field *field = what;

	return emit_equal(filter, filter->i8, field->at, field->value);
}

static LLVMValueRef emit_host(struct filter *filter, const void *what)
{
	const struct field *field = what;

	return emit_equal(filter, filter->i32, field->at, field->value);
}

/* at is an i64: where the TCP or UDP header begins. */
struct port {
	LLVMValueRef at;
	unsigned long value;
};

static LLVMValueRef emit_port_field(struct filter *filter, const void *what)
{
	const struct port *port = what;

	return LLVMBuildICmp(filter->builder, LLVMIntEQ, load(filter, filter->i16, port->at), number(filter->i16, port->value), "");
}

static LLVMValueRef emit_port(struct filter *filter, const void *what)
{
	const struct field *field = what;
	LLVMValueRef words, at, is_tcp, is_udp, is_long;

	words = LLVMBuildAnd(filter->builder, load(filter, filter->i8, number(filter->i64, IP_AT)), number(filter->i8, 15), "");
	at = LLVMBuildMul(filter->builder, LLVMBuildZExt(filter->builder, words, filter->i64, ""), number(filter->i64, 4), "");
	at = LLVMBuildAdd(filter->builder, at, number(filter->i64, IP_AT + field->at), "");
	is_tcp = emit_equal(filter, filter->i8, PROTOCOL_AT, 6);
	is_udp = emit_equal(filter, filter->i8, PROTOCOL_AT, 17);
	is_long = LLVMBuildICmp(filter->builder, LLVMIntUGE, filter->len,
				LLVMBuildAdd(filter->builder, at, number(filter->i64, 2), ""), "");
	is_long = LLVMBuildAnd(filter->builder, is_long, LLVMBuildOr(filter->builder, is_tcp, is_udp, ""), "");
	return emit_short_circuit(filter, is_long, true, emit_port_field, &(struct port){ at, field->value });
}

/* ---- the grammar ---------------------------------------------------------------------------------------------- */

static LLVMValueRef parse_or(struct filter *filter, const void *what);

static LLVMValueRef parse_ip_test(struct filter *filter, emit_fn *emit, unsigned at, unsigned long value)
{
	return emit_short_circuit(filter, emit_ip(filter), true, emit, &(struct field){ at, value });
}

static LLVMValueRef parse_side(struct filter *filter, bool is_source)
{
	if (take(filter, "host"))
		return parse_ip_test(filter, emit_host, is_source ? SOURCE_AT : DESTINATION_AT, take_address(filter));
	if (take(filter, "port"))
		return parse_ip_test(filter, emit_port, is_source ? 0 : 2, take_number(filter, 65535));
	return fail(filter, "'host' or 'port' was expected at '%.20s'", filter->at);
}

static LLVMValueRef parse_test(struct filter *filter)
{
	if (take(filter, "ip"))
		return emit_ip(filter);
	if (take(filter, "icmp"))
		return parse_ip_test(filter, emit_protocol, PROTOCOL_AT, 1);
	if (take(filter, "tcp"))
		return parse_ip_test(filter, emit_protocol, PROTOCOL_AT, 6);
	if (take(filter, "udp"))
		return parse_ip_test(filter, emit_protocol, PROTOCOL_AT, 17);
	if (take(filter, "src"))
		return parse_side(filter, true);
	if (take(filter, "dst"))
		return parse_side(filter, false);
	if (take(filter, "len")) {
		LLVMIntPredicate predicate = take(filter, "<") ? LLVMIntULT : LLVMIntUGT;

		if (predicate == LLVMIntUGT && !take(filter, ">"))
			return fail(filter, "'<' or '>' was expected at '%.20s'", filter->at);
		return LLVMBuildICmp(filter->builder, predicate, filter->len, number(filter->i64, take_number(filter, 65535)), "");
	}
	return fail(filter, "a test was expected at '%.20s'", filter->at);
}

static LLVMValueRef parse_not(struct filter *filter, const void *what)
{
	LLVMValueRef value;

	if (++filter->depth > MAX_DEPTH)
		return fail(filter, "the filter is nested more than %d deep", MAX_DEPTH);
	if (take(filter, "not")) {
		value = LLVMBuildNot(filter->builder, parse_not(filter, NULL), "");
	} else if (take(filter, "(")) {
		value = parse_or(filter, NULL);
		if (!take(filter, ")"))
			fail(filter, "')' was expected at '%.20s'", filter->at);
	} else {
		value = parse_test(filter);
	}
	filter->depth--;
	return value;
}

static LLVMValueRef parse_and(struct filter *filter, const void *what)
{
	LLVMValueRef value = parse_not(filter, NULL);

	while (!filter->failed && take(filter, "and"))
		value = emit_short_circuit(filter, value, true, parse_not, NULL);
	return value;
}

static LLVMValueRef parse_or(struct filter *filter, const void *what)
{
	LLVMValueRef value = parse_and(filter, NULL);

	while (!filter->failed && take(filter, "or"))
		value = emit_short_circuit(filter, value, false, parse_and, NULL);
	return value;
}

/* ---- the function --------------------------------------------------------------------------------------------- */

static LLVMValueRef load_member(struct filter *filter, LLVMTypeRef type, size_t offset, const char *name)
{
	LLVMValueRef at = number(filter->i64, offset), packet = LLVMGetParam(filter->function, 0);

	return LLVMBuildLoad2(filter->builder, type, LLVMBuildGEP2(filter->builder, filter->i8, packet, &at, 1, ""), name);
}

/* Counts the packet in this CPU's copy of @passed: the passes make the call inline code. */
static void emit_count(struct filter *filter, LLVMValueRef verdict)
{
	LLVMTypeRef types[] = { filter->ptr, filter->i64 };
	LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(filter->context), types, 2, 0);
	LLVMValueRef add = LLVMAddFunction(filter->module, "shunt_percpu_add64", type);
	LLVMValueRef counter = LLVMAddGlobal(filter->module, filter->i64, "passed");
	LLVMValueRef args[] = { counter, LLVMBuildZExt(filter->builder, verdict, filter->i64, "") };

	LLVMBuildCall2(filter->builder, type, add, args, 2, "");
}

int filter_compile(const char *text, LLVMModuleRef module, char *error, size_t error_room)
{
	LLVMContextRef context = LLVMGetModuleContext(module);
	struct filter filter = {
		.at = text,
		.context = context,
		.module = module,
		.builder = LLVMCreateBuilderInContext(context),
		.i1 = LLVMInt1TypeInContext(context),
		.i8 = LLVMInt8TypeInContext(context),
		.i16 = LLVMInt16TypeInContext(context),
		.i32 = LLVMInt32TypeInContext(context),
		.i64 = LLVMInt64TypeInContext(context),
		.ptr = LLVMPointerTypeInContext(context, 0),
		.error = error,
		.error_room = error_room,
	};
	LLVMValueRef verdict;

	filter.function = LLVMAddFunction(module, "filter", LLVMFunctionType(filter.i32, &filter.ptr, 1, 0));
	LLVMPositionBuilderAtEnd(filter.builder, LLVMAppendBasicBlockInContext(context, filter.function, "entry"));
	filter.bytes = load_member(&filter, filter.ptr, offsetof(struct packet, bytes), "bytes");
	filter.len = load_member(&filter, filter.i64, offsetof(struct packet, len), "len");
	verdict = parse_or(&filter, NULL);
	skip_space(&filter);
	if (*filter.at)
		fail(&filter, "'and', 'or' or the end was expected at '%.20s'", filter.at);
	emit_count(&filter, verdict);
	LLVMBuildRet(filter.builder, LLVMBuildZExt(filter.builder, verdict, filter.i32, ""));
	LLVMDisposeBuilder(filter.builder);
	return filter.failed ? -1 : 0;
}
