/* SPDX-License-Identifier: MIT */
/* Reads and writes value profiles as LLVM's instrumentation leaves them on indirect calls. */
#include <stdlib.h>
#include <string.h>
#include "passes/ir.h"
#include "passes/profile.h"

enum { KIND_CALL_TARGET = 0 };

/* ---- MD5 (RFC 1321) ------------------------------------------------------------------------------------------- */

/* floor(2^32 * |sin(i + 1)|) */
static const uint32_t sines[64] = {
	0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
	0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
	0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
	0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
	0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
	0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
	0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
	0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
};

static uint32_t rotate(uint32_t x, unsigned n)
{
	return x << n | x >> (32 - n);
}

static void md5_block(uint32_t state[4], const uint8_t block[64])
{
	static const uint8_t shifts[4][4] = { { 7, 12, 17, 22 }, { 5, 9, 14, 20 }, { 4, 11, 16, 23 }, { 6, 10, 15, 21 } };
	uint32_t a = state[0], b = state[1], c = state[2], d = state[3], words[16];

	for (int i = 0; i < 16; i++)
		words[i] = block[4 * i] | (uint32_t)block[4 * i + 1] << 8 | (uint32_t)block[4 * i + 2] << 16 |
			   (uint32_t)block[4 * i + 3] << 24;
	for (unsigned i = 0; i < 64; i++) {
		uint32_t f, word, next;

		switch (i / 16) {
		case 0:
			f = (b & c) | (~b & d);
			word = i;
			break;
		case 1:
			f = (d & b) | (~d & c);
			word = 5 * i + 1;
			break;
		case 2:
			f = b ^ c ^ d;
			word = 3 * i + 5;
			break;
		default:
			f = c ^ (b | ~d);
			word = 7 * i;
			break;
		}
		next = b + rotate(a + f + sines[i] + words[word % 16], shifts[i / 16][i % 4]);
		a = d;
		d = c;
		c = b;
		b = next;
	}
	state[0] += a;
	state[1] += b;
	state[2] += c;
	state[3] += d;
}

uint64_t shunt_profile_hash(const char *name, size_t len)
{
	uint32_t state[4] = { 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476 };
	uint8_t last[128] = { 0 };
	size_t whole = len / 64 * 64, rest = len - whole, last_len = rest < 56 ? 64 : 128;

	for (size_t at = 0; at < whole; at += 64)
		md5_block(state, (const uint8_t *)name + at);
	memcpy(last, name + whole, rest);
	last[rest] = 0x80;
	for (int i = 0; i < 8; i++)
		last[last_len - 8 + (size_t)i] = (uint8_t)((uint64_t)len * 8 >> 8 * i);
	for (size_t at = 0; at < last_len; at += 64)
		md5_block(state, last + at);
	return state[0] | (uint64_t)state[1] << 32;
}

/* ---- metadata ------------------------------------------------------------------------------------------------- */

static unsigned prof_kind(struct shunt_pass *pass)
{
	return LLVMGetMDKindIDInContext(pass->context, "prof", strlen("prof"));
}

static bool is_number(LLVMValueRef value)
{
	return value && LLVMIsAConstantInt(value) && LLVMGetIntTypeWidth(LLVMTypeOf(value)) <= 64;
}

bool shunt_profile_read(struct shunt_pass *pass, LLVMValueRef call, struct shunt_profile *out)
{
	LLVMValueRef node = LLVMGetMetadata(call, prof_kind(pass)), *operands = pass->scratch->args;
	int nr = node ? LLVMGetMDNodeNumOperands(node) : 0;
	unsigned len = 0;
	const char *tag;

	if (nr < 5 || nr > SHUNT_PASS_MAX_ARGS)
		return false;
	LLVMGetMDNodeOperands(node, operands);
	tag = operands[0] && LLVMIsAMDString(operands[0]) ? LLVMGetMDString(operands[0], &len) : NULL;
	if (!tag || len != 2 || memcmp(tag, "VP", 2) || !is_number(operands[1]) || !is_number(operands[2]) ||
	    LLVMConstIntGetZExtValue(operands[1]) != KIND_CALL_TARGET)
		return false;
	out->total = LLVMConstIntGetZExtValue(operands[2]);
	out->nr = 0;
	for (int i = 3; i + 1 < nr && out->nr < SHUNT_PROFILE_MAX; i += 2) {
		if (!is_number(operands[i]) || !is_number(operands[i + 1]))
			return false;
		out->targets[out->nr].hash = LLVMConstIntGetZExtValue(operands[i]);
		out->targets[out->nr++].count = LLVMConstIntGetZExtValue(operands[i + 1]);
	}
	return true;
}

/* Local functions carry their file's name: two files may each have an `open`. */
static uint64_t function_hash(struct shunt_pass *pass, LLVMValueRef function)
{
	unsigned kind = LLVMGetMDKindIDInContext(pass->context, "PGOFuncName", strlen("PGOFuncName"));
	LLVMValueRef node = LLVMIsAFunction(function) ? LLVMGetMetadata(function, kind) : NULL, operand = NULL;
	size_t len = 0, file_len = 0;
	const char *name, *file;
	unsigned md_len = 0;
	uint64_t result;
	char *whole;

	if (node && LLVMGetMDNodeNumOperands(node) == 1) {
		LLVMGetMDNodeOperands(node, &operand);
		name = operand && LLVMIsAMDString(operand) ? LLVMGetMDString(operand, &md_len) : NULL;
		if (name)
			return shunt_profile_hash(name, md_len);
	}
	name = LLVMGetValueName2(function, &len);
	if (len && name[0] == '\1') {
		name++;
		len--;
	}
	if (!shunt_ir_is_local(function))
		return shunt_profile_hash(name, len);
	file = LLVMGetSourceFileName(pass->module, &file_len);
	whole = malloc(file_len + 1 + len + 1);
	if (!whole)
		return 0;
	memcpy(whole, file, file_len);
	whole[file_len] = ';';
	memcpy(whole + file_len + 1, name, len);
	result = shunt_profile_hash(whole, file_len + 1 + len);
	free(whole);
	return result;
}

uint64_t shunt_profile_take(struct shunt_pass *pass, struct shunt_profile *profile, LLVMValueRef function)
{
	uint64_t hash = function_hash(pass, function);

	for (unsigned i = 0; i < profile->nr; i++) {
		uint64_t count = profile->targets[i].count;

		if (profile->targets[i].hash != hash)
			continue;
		for (unsigned j = i + 1; j < profile->nr; j++)
			profile->targets[j - 1] = profile->targets[j];
		profile->nr--;
		profile->total -= count < profile->total ? count : profile->total;
		return count;
	}
	return 0;
}

static LLVMMetadataRef number(struct shunt_pass *pass, LLVMTypeRef type, uint64_t value)
{
	return LLVMValueAsMetadata(LLVMConstInt(type, value, 0));
}

static void set_prof(struct shunt_pass *pass, LLVMValueRef instruction, LLVMMetadataRef *operands, size_t nr)
{
	LLVMSetMetadata(instruction, prof_kind(pass),
			LLVMMetadataAsValue(pass->context, LLVMMDNodeInContext2(pass->context, operands, nr)));
}

void shunt_profile_write(struct shunt_pass *pass, LLVMValueRef call, const struct shunt_profile *profile)
{
	LLVMMetadataRef operands[3 + 2 * SHUNT_PROFILE_MAX];
	size_t nr = 3;

	if (!profile->nr || !profile->total) {
		LLVMSetMetadata(call, prof_kind(pass), NULL);
		return;
	}
	operands[0] = LLVMMDStringInContext2(pass->context, "VP", 2);
	operands[1] = number(pass, pass->i32, KIND_CALL_TARGET);
	operands[2] = number(pass, pass->i64, profile->total);
	for (unsigned i = 0; i < profile->nr; i++) {
		operands[nr++] = number(pass, pass->i64, profile->targets[i].hash);
		operands[nr++] = number(pass, pass->i64, profile->targets[i].count);
	}
	set_prof(pass, call, operands, nr);
}

void shunt_profile_weigh(struct shunt_pass *pass, LLVMValueRef instruction, const uint64_t *weights, unsigned nr)
{
	LLVMMetadataRef operands[3];
	uint64_t largest = 0, divisor;

	for (unsigned i = 0; i < nr; i++)
		largest = weights[i] > largest ? weights[i] : largest;
	divisor = largest / UINT32_MAX + 1;
	operands[0] = LLVMMDStringInContext2(pass->context, "branch_weights", strlen("branch_weights"));
	for (unsigned i = 0; i < nr; i++)
		operands[1 + i] = number(pass, pass->i32, weights[i] / divisor);
	set_prof(pass, instruction, operands, nr + 1);
}
