/* SPDX-License-Identifier: MIT */
/*
 * Map lookups, by map type:
 *
 *	ARRAY          key < max_entries ? values + key * stride : NULL
 *	PERCPU_ARRAY   the same, then this CPU's (or the given CPU's) copy
 *	PERCPU_HASH    a direct call of the hash, then this CPU's copy of what it found; LRU_PERCPU_HASH likewise
 *	HASH           a direct call of the hash; LRU_HASH likewise
 *
 * Small keys of hashes that are not LRU get their first probe inline (hash_probe.h).
 */
#include "passes/hash_probe.h"
#include "passes/maps.h"
#include "passes/percpu.h"
#include "passes/rmw.h"

static bool is_array(uint32_t type)
{
	return type == SHUNT_MAP_ARRAY || type == SHUNT_MAP_PERCPU_ARRAY;
}

static bool is_percpu(uint32_t type)
{
	return type == SHUNT_MAP_PERCPU_ARRAY || type == SHUNT_MAP_PERCPU_HASH || type == SHUNT_MAP_LRU_PERCPU_HASH;
}

static bool is_hash(uint32_t type)
{
	return type == SHUNT_MAP_HASH || type == SHUNT_MAP_LRU_HASH || type == SHUNT_MAP_PERCPU_HASH ||
	       type == SHUNT_MAP_LRU_PERCPU_HASH;
}

/* The constant that the key certainly is: a constant global's, or that of a slot which one constant is stored to and lookups read.
 */
static LLVMValueRef constant_key(struct shunt_pass *pass, LLVMValueRef key)
{
	LLVMValueRef value = NULL;

	if (LLVMIsAGlobalVariable(key) && LLVMIsGlobalConstant(key) && shunt_ir_is_local(key))
		value = LLVMGetInitializer(key);
	else if (LLVMIsAAllocaInst(key))
		for (LLVMUseRef use = LLVMGetFirstUse(key); use; use = LLVMGetNextUse(use)) {
			LLVMValueRef user = LLVMGetUser(use);
			LLVMValueRef callee = LLVMIsACallInst(user) ? LLVMGetCalledValue(user) : NULL;

			if (LLVMIsALoadInst(user) || shunt_ir_has_prefix(callee, "llvm.lifetime.") ||
			    shunt_ir_has_prefix(callee, "shunt_map_lookup") || shunt_ir_has_prefix(callee, "shunt_map_find_"))
				continue;
			if (!LLVMIsAStoreInst(user) || LLVMGetOperand(user, 0) == key || value)
				return NULL;
			value = LLVMGetOperand(user, 0);
		}
	return value && LLVMIsAConstantInt(value) && LLVMTypeOf(value) == pass->i32 ? value : NULL;
}

static LLVMValueRef load_key(struct shunt_pass *pass, LLVMValueRef key)
{
	LLVMValueRef load = LLVMBuildLoad2(pass->builder, pass->i32, key, "key");

	LLVMSetAlignment(load, shunt_ir_alignment(pass, key));
	return load;
}

static LLVMValueRef load_values(struct shunt_pass *pass, LLVMValueRef map)
{
	LLVMValueRef offset = LLVMConstInt(pass->i64, offsetof(struct shunt_map_abi, values), 0), pointer, load;

	pointer = LLVMBuildInBoundsGEP2(pass->builder, pass->i8, map, &offset, 1, "");
	load = LLVMBuildLoad2(pass->builder, pass->ptr, pointer, "values");
	LLVMSetAlignment(load, 8);
	LLVMSetMetadata(load, LLVMGetMDKindIDInContext(pass->context, "nonnull", 7),
			LLVMMetadataAsValue(pass->context, LLVMMDNodeInContext2(pass->context, NULL, 0)));
	return load;
}

/* The smallest 2^n - 1 that has every index below max_entries. */
static uint32_t index_mask(const struct shunt_pass_map *map)
{
	uint32_t mask = map->max_entries - 1;

	if (map->index_mask >= mask)
		return map->index_mask;
	for (unsigned shift = 1; shift < 32; shift *= 2)
		mask |= mask >> shift;
	return mask;
}

static LLVMValueRef both(struct shunt_pass *pass, LLVMValueRef a, LLVMValueRef b)
{
	return a && b ? LLVMBuildAnd(pass->builder, a, b, "") : a ? a : b;
}

/* The given CPU's copy of a value, or with cpu NULL this CPU's. */
static LLVMValueRef copy_of(struct shunt_pass *pass, LLVMValueRef p, LLVMValueRef cpu)
{
	return cpu ? shunt_pass_copy_of(pass, p, cpu) : shunt_pass_this_copy(pass, p);
}

/* Remembers what p is, for exact updates. */
static void record(struct shunt_pass *pass, const struct shunt_pass_map_operand *found, LLVMValueRef p, LLVMValueRef unit0, LLVMValueRef cpu)
{
	struct shunt_rmw_lookup lookup = {
		.value = p,
		.kind = cpu ? SHUNT_RMW_OTHER_CPU : is_percpu(found->map->type) ? SHUNT_RMW_THIS_CPU : SHUNT_RMW_SHARED,
		.unit0 = unit0,
		.map = found->several ? NULL : found->map,
	};

	shunt_rmw_record(pass, &lookup);
}

/* map: NULL where the address of the values is known. cpu, is_cpu: NULL unless the call names a CPU. */
static void lower_array(struct shunt_pass *pass, LLVMValueRef call, const char *callee, const struct shunt_pass_map_operand *found,
			LLVMValueRef map, LLVMValueRef cpu, LLVMValueRef is_cpu)
{
	uint64_t stride = found->map->stride ? found->map->stride : ((uint64_t)found->map->value_size + 7) & ~UINT64_C(7);
	LLVMValueRef key_pointer = shunt_ir_coerce(pass, LLVMGetOperand(call, 1), pass->ptr, false);
	LLVMValueRef key = constant_key(pass, key_pointer), is_in = is_cpu, offset, p, unit0;

	if (key && LLVMConstIntGetZExtValue(key) >= found->map->max_entries) {
		p = LLVMConstNull(pass->ptr);
	} else {
		if (!key) {
			LLVMValueRef bound = LLVMConstInt(pass->i32, found->map->max_entries, 0);

			key = load_key(pass, key_pointer);
			is_in = both(pass, LLVMBuildICmp(pass->builder, LLVMIntULT, key, bound, ""), is_cpu);
			if (pass->options->spectre_v1)
				key = LLVMBuildAnd(pass->builder, key, LLVMConstInt(pass->i32, index_mask(found->map), 0), "");
		}
		offset = LLVMBuildZExt(pass->builder, key, pass->i64, "");
		offset = LLVMBuildMul(pass->builder, offset, LLVMConstInt(pass->i64, stride, 0), "");
		p = map ? load_values(pass, map) : LLVMConstIntToPtr(LLVMConstInt(pass->i64, found->map->values, 0), pass->ptr);
		/* In bounds where it is used: a key that is not is not selected. The null check of the program then is that of the key. */
		p = LLVMBuildInBoundsGEP2(pass->builder, pass->i8, p, &offset, 1, "");
		unit0 = p;
		if (is_percpu(found->map->type))
			p = copy_of(pass, p, cpu);
		if (is_in)
			p = LLVMBuildSelect(pass->builder, is_in, p, LLVMConstNull(pass->ptr), "");
		record(pass, found, p, unit0, cpu);
	}
	if (is_percpu(found->map->type)) {
		shunt_pass_passed(pass, call, "InlinedPercpuArrayLookup", callee, "per-CPU array lookup inlined");
		pass->counts->percpu_array_lookups++;
	} else {
		shunt_pass_passed(pass, call, "InlinedArrayLookup", callee, "array lookup inlined");
		pass->counts->array_lookups++;
	}
	shunt_ir_replace(pass, call, p, false);
}

static LLVMTypeRef find_type(struct shunt_pass *pass)
{
	LLVMTypeRef types[] = { pass->ptr, pass->ptr };

	return LLVMFunctionType(pass->ptr, types, 2, 0);
}

static LLVMValueRef declare_find(struct shunt_pass *pass, LLVMValueRef call, const char *callee, bool percpu)
{
	const char *name = percpu ? "shunt_map_find_percpu" : "shunt_map_find_hash";
	LLVMValueRef function = shunt_ir_declare(pass, name, find_type(pass));

	if (!function) {
		shunt_pass_missed(pass, call, "NameTaken", callee, "call left: '%s' is not a function in this module", name);
		return NULL;
	}
	/* The key is read and forgotten. The map is not marked: LRU maps note the access in it. */
	if (LLVMIsDeclaration(function) && LLVMGlobalGetValueType(function) == find_type(pass)) {
		shunt_ir_add_attribute(pass, function, 2, "nocapture");
		shunt_ir_add_attribute(pass, function, 2, "readonly");
	}
	return function;
}

static void lower_hash(struct shunt_pass *pass, LLVMValueRef call, const char *callee, const struct shunt_pass_map_operand *found,
		       LLVMValueRef find, LLVMValueRef map, LLVMValueRef cpu, LLVMValueRef is_cpu)
{
	LLVMValueRef args[] = { map, shunt_ir_coerce(pass, LLVMGetOperand(call, 1), pass->ptr, false) }, p, unit0, is_in;
	bool has_probe = shunt_pass_has_probe(pass, call, found->map), percpu = is_percpu(found->map->type);

	if (has_probe)
		p = LLVMBuildCall2(pass->builder, find_type(pass), shunt_pass_hash_probe(pass, call, find, found->map), args, 2, "");
	else
		p = shunt_ir_call_like(pass, call, find_type(pass), find, args, 2);
	unit0 = p;
	if (!percpu) {
		shunt_pass_passed(pass, call, "DirectHashLookup", callee, "became a direct call of the hash%s",
				  has_probe ? ", with its first probe inline" : "");
		pass->counts->hash_lookups++;
	} else {
		is_in = both(pass, LLVMBuildICmp(pass->builder, LLVMIntNE, p, LLVMConstNull(pass->ptr), ""), is_cpu);
		p = LLVMBuildSelect(pass->builder, is_in, copy_of(pass, p, cpu), LLVMConstNull(pass->ptr), "");
		shunt_pass_passed(pass, call, "InlinedPercpuHashLookup", callee,
				  "became a direct call of the hash%s and an inline per-CPU step",
				  has_probe ? " with its first probe inline" : "");
		pass->counts->percpu_hash_lookups++;
	}
	record(pass, found, p, unit0, cpu);
	shunt_ir_replace(pass, call, p, false);
}

/* Whether a lookup in a map of that description has an inline form; says why not. */
static bool has_form(struct shunt_pass *pass, LLVMValueRef call, const char *callee, const struct shunt_pass_map_operand *found,
		     bool is_of)
{
	const struct shunt_pass_map *map = found->map;

	if (!map)
		shunt_pass_missed(pass, call, "UnknownMap", callee, "call left: the map operand %s", found->why);
	else if (is_of ? !is_percpu(map->type) : !is_array(map->type) && !is_hash(map->type))
		shunt_pass_missed(pass, call, "MapTypeNotInlined", callee, "call left: maps of type %u have no inline form of it",
				  map->type);
	else if (is_array(map->type) && (map->key_size != 4 || !map->max_entries))
		shunt_pass_missed(pass, call, "KeySizeNotInlined", callee,
				  "call left: an array of %u entries with keys of %u bytes has no inline form", map->max_entries,
				  map->key_size);
	else if (is_percpu(map->type) && !is_of && pass->options->cpu == SHUNT_PASS_CPU_CALL) {
		record(pass, found, call, NULL, NULL);
		shunt_pass_missed(pass, call, "NoCpuSource", callee,
				  "call left: no source of the CPU number is known for this module");
	} else
		return true;
	return false;
}

/* Everything that can fail comes before anything is built. */
void shunt_pass_lookup(struct shunt_pass *pass, LLVMValueRef call, const char *callee, bool is_of)
{
	struct shunt_pass_map_operand found = shunt_pass_find_map(pass, LLVMGetOperand(call, 0));
	LLVMValueRef map = NULL, cpu = NULL, is_cpu = NULL, find = NULL;
	bool needs_map;

	if (!has_form(pass, call, callee, &found, is_of))
		return;
	needs_map = !is_array(found.map->type) || !found.map->values || found.several;
	if (needs_map && !shunt_pass_has_map_pointer(pass, &found)) {
		shunt_pass_missed(pass, call, "UnknownMap", callee,
				  "call left: the map operand is a handle of a map whose address is not known");
		return;
	}
	if (is_of && !shunt_pass_can_count_cpus(pass, call, callee))
		return;
	if (is_hash(found.map->type)) {
		find = declare_find(pass, call, callee, is_percpu(found.map->type));
		if (!find)
			return;
	}
	if (needs_map)
		map = shunt_pass_map_pointer(pass, &found, LLVMGetOperand(call, 0));
	if (is_of) {
		cpu = shunt_ir_coerce(pass, LLVMGetOperand(call, 2), pass->i32, false);
		is_cpu = shunt_pass_is_cpu(pass, cpu);
	}
	if (find)
		lower_hash(pass, call, callee, &found, find, map, cpu, is_cpu);
	else
		lower_array(pass, call, callee, &found, map, cpu, is_cpu);
}
