/* SPDX-License-Identifier: MIT */
/*
 * The first probe of a hash, inline, for keys of 4, 8 and 16 bytes: XXH3 of the key, its bucket's first element, a compare. An empty bucket
 * says that the key is absent; another first element sends the lookup to the function of libshunt. It branches, so it is built as a function
 * of the module's own, one for each function that looks up, which LLVM inlines at every -O: code that is inlined without the caller's string
 * attributes would take some from the caller.
 *
 * Beside updates and deletions: the bucket is loaded with acquire, and an element is whole before it is linked; it stays what it is until
 * the program's read section ends, linked or not. So what is found is what shunt_map_find_hash would have found at the moment of that load.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "passes/hash_probe.h"

enum { TAKEN = 31, NOT_TAKEN = 1 }; /* two buckets an entry: a chain's second element is rare */

bool shunt_pass_has_probe(const struct shunt_pass *pass, LLVMValueRef call, const struct shunt_pass_map *map)
{
	static const char *const small[] = { "minsize", "optsize" };
	LLVMValueRef function = LLVMGetBasicBlockParent(LLVMGetInstructionParent(call));

	if (pass->options->hash_calls || (map->type != SHUNT_MAP_HASH && map->type != SHUNT_MAP_PERCPU_HASH))
		return false;
	for (size_t i = 0; i < sizeof(small) / sizeof(small[0]); i++)
		if (LLVMGetEnumAttributeAtIndex(function, LLVMAttributeFunctionIndex, LLVMGetEnumAttributeKindForName(small[i], strlen(small[i]))))
			return false;
	return (map->key_size == 4 || map->key_size == 8 || map->key_size == 16) && !LLVMGetNumOperandBundles(call) &&
	       LLVMGetTailCallKind(call) != LLVMTailCallKindMustTail;
}

static LLVMValueRef number(const struct shunt_pass *pass, uint64_t value)
{
	return LLVMConstInt(pass->i64, value, 0);
}

static LLVMValueRef load_at(struct shunt_pass *pass, LLVMTypeRef type, LLVMValueRef pointer, uint64_t offset, unsigned align)
{
	LLVMValueRef index = number(pass, offset), load;

	if (offset)
		pointer = LLVMBuildInBoundsGEP2(pass->builder, pass->i8, pointer, &index, 1, "");
	load = LLVMBuildLoad2(pass->builder, type, pointer, "");
	LLVMSetAlignment(load, align);
	return load;
}

/* A field of struct shunt_map_abi that never changes. */
static LLVMValueRef load_field(struct shunt_pass *pass, LLVMTypeRef type, LLVMValueRef map, size_t offset)
{
	static const char name[] = "invariant.load";
	LLVMValueRef load = load_at(pass, type, map, offset, 8);

	LLVMSetMetadata(load, LLVMGetMDKindIDInContext(pass->context, name, sizeof(name) - 1),
			LLVMMetadataAsValue(pass->context, LLVMMDNodeInContext2(pass->context, NULL, 0)));
	return load;
}

static LLVMValueRef shift_right(struct shunt_pass *pass, LLVMValueRef value, unsigned bits)
{
	return LLVMBuildLShr(pass->builder, value, LLVMConstInt(LLVMTypeOf(value), bits, 0), "");
}

static LLVMValueRef xor_shifted(struct shunt_pass *pass, LLVMValueRef value, unsigned bits)
{
	return LLVMBuildXor(pass->builder, value, shift_right(pass, value, bits), "");
}

static LLVMValueRef call_intrinsic(struct shunt_pass *pass, const char *name, LLVMValueRef *args, unsigned nr)
{
	LLVMValueRef intrinsic =
		LLVMGetIntrinsicDeclaration(pass->module, LLVMLookupIntrinsicID(name, strlen(name)), &pass->i64, 1);

	return LLVMBuildCall2(pass->builder, LLVMGlobalGetValueType(intrinsic), intrinsic, args, nr, "");
}

static LLVMValueRef rotate_left(struct shunt_pass *pass, LLVMValueRef value, unsigned bits)
{
	LLVMValueRef args[] = { value, value, number(pass, bits) };

	return call_intrinsic(pass, "llvm.fshl", args, 3);
}

/* XXH3 of 4 to 8 bytes; halves has the first 4 in its upper half and the last 4 in its lower. */
static LLVMValueRef hash_short(struct shunt_pass *pass, LLVMValueRef halves, LLVMValueRef flip, uint64_t len)
{
	LLVMValueRef hash = LLVMBuildXor(pass->builder, halves, flip, ""), by_49 = rotate_left(pass, hash, 49);

	by_49 = LLVMBuildXor(pass->builder, by_49, rotate_left(pass, hash, 24), "");
	hash = LLVMBuildXor(pass->builder, hash, by_49, "");
	hash = LLVMBuildMul(pass->builder, hash, number(pass, 0x9fb21c651e98df25), "");
	hash = LLVMBuildXor(pass->builder, hash, LLVMBuildAdd(pass->builder, shift_right(pass, hash, 35), number(pass, len), ""), "");
	hash = LLVMBuildMul(pass->builder, hash, number(pass, 0x9fb21c651e98df25), "");
	return xor_shifted(pass, hash, 28);
}

/* XXH3 of 16 bytes. */
static LLVMValueRef hash_long(struct shunt_pass *pass, LLVMValueRef low, LLVMValueRef high, LLVMValueRef map)
{
	LLVMTypeRef i128 = LLVMIntTypeInContext(pass->context, 128);
	const size_t at = offsetof(struct shunt_map_abi, hash_key);
	LLVMValueRef product, folded, sum;

	/* One step a statement: the order of arguments is the compiler's. */
	low = LLVMBuildXor(pass->builder, low, load_field(pass, pass->i64, map, at), "");
	high = LLVMBuildXor(pass->builder, high, load_field(pass, pass->i64, map, at + 8), "");
	product = LLVMBuildZExt(pass->builder, low, i128, "");
	product = LLVMBuildMul(pass->builder, product, LLVMBuildZExt(pass->builder, high, i128, ""), "");
	folded = LLVMBuildTrunc(pass->builder, shift_right(pass, product, 64), pass->i64, "");
	folded = LLVMBuildXor(pass->builder, folded, LLVMBuildTrunc(pass->builder, product, pass->i64, ""), "");
	sum = LLVMBuildAdd(pass->builder, call_intrinsic(pass, "llvm.bswap", &low, 1), number(pass, 16), "");
	sum = LLVMBuildAdd(pass->builder, LLVMBuildAdd(pass->builder, sum, high, ""), folded, "");
	sum = LLVMBuildMul(pass->builder, xor_shifted(pass, sum, 37), number(pass, 0x165667919e3779f9), "");
	return xor_shifted(pass, sum, 32);
}

/* The key in words, as it is hashed and compared. */
struct key {
	uint32_t size;
	LLVMTypeRef type;
	LLVMValueRef words[2];
};

static struct key load_key(struct shunt_pass *pass, LLVMValueRef pointer, uint32_t size, unsigned align)
{
	struct key key = { .size = size, .type = size == 4 ? pass->i32 : pass->i64 };

	key.words[0] = load_at(pass, key.type, pointer, 0, align);
	if (size == 16)
		key.words[1] = load_at(pass, key.type, pointer, 8, align);
	return key;
}

static LLVMValueRef hash_of(struct shunt_pass *pass, const struct key *key, LLVMValueRef map)
{
	LLVMValueRef flip, wide;

	if (key->size == 16)
		return hash_long(pass, key->words[0], key->words[1], map);
	flip = load_field(pass, pass->i64, map, offsetof(struct shunt_map_abi, hash_key));
	wide = LLVMBuildZExt(pass->builder, key->words[0], pass->i64, "");
	if (key->size == 4)
		wide = LLVMBuildOr(pass->builder, wide, LLVMBuildShl(pass->builder, wide, number(pass, 32), ""), "");
	else
		wide = rotate_left(pass, wide, 32);
	return hash_short(pass, wide, flip, key->size);
}

static LLVMValueRef is_key_of(struct shunt_pass *pass, const struct key *key, LLVMValueRef elem)
{
	struct key other;
	LLVMValueRef at = number(pass, SHUNT_MAP_ELEM_KEY), low, high;

	other = load_key(pass, LLVMBuildInBoundsGEP2(pass->builder, pass->i8, elem, &at, 1, ""), key->size, 8);
	if (key->size != 16)
		return LLVMBuildICmp(pass->builder, LLVMIntEQ, key->words[0], other.words[0], "");
	low = LLVMBuildXor(pass->builder, key->words[0], other.words[0], "");
	high = LLVMBuildXor(pass->builder, key->words[1], other.words[1], "");
	return LLVMBuildICmp(pass->builder, LLVMIntEQ, LLVMBuildOr(pass->builder, low, high, ""), number(pass, 0), "");
}

static void weigh(struct shunt_pass *pass, LLVMValueRef branch)
{
	LLVMMetadataRef weights[] = {
		LLVMMDStringInContext2(pass->context, "branch_weights", strlen("branch_weights")),
		LLVMValueAsMetadata(LLVMConstInt(pass->i32, TAKEN, 0)),
		LLVMValueAsMetadata(LLVMConstInt(pass->i32, NOT_TAKEN, 0)),
	};

	LLVMSetMetadata(branch, LLVMGetMDKindIDInContext(pass->context, "prof", 4),
			LLVMMetadataAsValue(pass->context, LLVMMDNodeInContext2(pass->context, weights, 3)));
}

static void build_body(struct shunt_pass *pass, LLVMValueRef function, LLVMValueRef find, uint32_t key_size, bool percpu)
{
	static const char *const names[] = { "probe", "compare", "hit", "rest", "end" };
	enum { PROBE, COMPARE, HIT, REST, END, NR_BLOCKS };
	LLVMBasicBlockRef blocks[NR_BLOCKS];
	LLVMValueRef map = LLVMGetParam(function, 0), key_pointer = LLVMGetParam(function, 1), args[] = { map, key_pointer };
	LLVMValueRef index, buckets, elem, body, rest, phi, nothing = LLVMConstNull(pass->ptr), offset;
	struct key key;

	for (int i = 0; i < NR_BLOCKS; i++)
		blocks[i] = LLVMAppendBasicBlockInContext(pass->context, function, names[i]);
	LLVMPositionBuilderAtEnd(pass->builder, blocks[PROBE]);
	/* Keys lie in a program's stack as a rule; LLVM sees the alignment there. */
	key = load_key(pass, key_pointer, key_size, 1);
	index = hash_of(pass, &key, map);
	index = LLVMBuildAnd(pass->builder, index, load_field(pass, pass->i64, map, offsetof(struct shunt_map_abi, bucket_mask)), "");
	buckets = load_field(pass, pass->ptr, map, offsetof(struct shunt_map_abi, buckets));
	elem = LLVMBuildLoad2(pass->builder, pass->ptr, LLVMBuildInBoundsGEP2(pass->builder, pass->ptr, buckets, &index, 1, ""), "elem");
	LLVMSetAlignment(elem, 8);
	LLVMSetOrdering(elem, LLVMAtomicOrderingAcquire);
	LLVMBuildCondBr(pass->builder, LLVMBuildICmp(pass->builder, LLVMIntEQ, elem, nothing, ""), blocks[END], blocks[COMPARE]);

	LLVMPositionBuilderAtEnd(pass->builder, blocks[COMPARE]);
	weigh(pass, LLVMBuildCondBr(pass->builder, is_key_of(pass, &key, elem), blocks[HIT], blocks[REST]));

	LLVMPositionBuilderAtEnd(pass->builder, blocks[HIT]);
	offset = number(pass, SHUNT_MAP_ELEM_KEY + (key_size + 7) / 8 * 8);
	body = LLVMBuildInBoundsGEP2(pass->builder, pass->i8, elem, &offset, 1, "");
	if (percpu)
		body = load_at(pass, pass->ptr, body, 0, 8);
	LLVMBuildBr(pass->builder, blocks[END]);

	LLVMPositionBuilderAtEnd(pass->builder, blocks[REST]);
	rest = LLVMBuildCall2(pass->builder, LLVMGlobalGetValueType(find), find, args, 2, "");
	LLVMBuildBr(pass->builder, blocks[END]);

	LLVMPositionBuilderAtEnd(pass->builder, blocks[END]);
	phi = LLVMBuildPhi(pass->builder, pass->ptr, "found");
	LLVMAddIncoming(phi, &nothing, &blocks[PROBE], 1);
	LLVMAddIncoming(phi, &body, &blocks[HIT], 1);
	LLVMAddIncoming(phi, &rest, &blocks[REST], 1);
	LLVMBuildRet(pass->builder, phi);
}

static void copy_string_attributes(struct shunt_pass *pass, LLVMValueRef from, LLVMValueRef to)
{
	unsigned nr = LLVMGetAttributeCountAtIndex(from, LLVMAttributeFunctionIndex);

	if (nr > SHUNT_PASS_MAX_ATTRIBUTES)
		return;
	LLVMGetAttributesAtIndex(from, LLVMAttributeFunctionIndex, pass->scratch->attributes);
	for (unsigned i = 0; i < nr; i++)
		if (LLVMIsStringAttribute(pass->scratch->attributes[i]))
			LLVMAddAttributeAtIndex(to, LLVMAttributeFunctionIndex, pass->scratch->attributes[i]);
}

LLVMValueRef shunt_pass_hash_probe(struct shunt_pass *pass, LLVMValueRef call, LLVMValueRef find, const struct shunt_pass_map *map)
{
	static const char *const attributes[] = { "alwaysinline", "nounwind", "willreturn" };
	bool percpu = map->type == SHUNT_MAP_PERCPU_HASH;
	LLVMValueRef caller = LLVMGetBasicBlockParent(LLVMGetInstructionParent(call)), function;
	char *name;
	size_t len;

	if (asprintf(&name, "%s.%u.%s", LLVMGetValueName2(find, &len), map->key_size, LLVMGetValueName2(caller, &len)) < 0) {
		pass->failed = true;
		return find;
	}
	function = LLVMGetNamedFunction(pass->module, name);
	if (!function) {
		function = LLVMAddFunction(pass->module, name, LLVMGlobalGetValueType(find));
		LLVMSetLinkage(function, LLVMInternalLinkage);
		copy_string_attributes(pass, caller, function);
		for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
			shunt_ir_add_attribute(pass, function, LLVMAttributeFunctionIndex, attributes[i]);
		LLVMSetCurrentDebugLocation2(pass->builder, NULL);
		build_body(pass, function, find, map->key_size, percpu);
		shunt_ir_at(pass, call);
	}
	free(name);
	return function;
}
