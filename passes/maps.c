/* SPDX-License-Identifier: MIT */
/*
 * Recognises map operands: a global symbol, a constant address or handle, a load of memory that can only hold one of these, a
 * select or phi of them, or an argument of a local function whose callers all agree. Arms may be different maps as long as their
 * geometry is the same; what a lookup in a map of maps gives is one of these.
 */
#include <string.h>
#include "passes/maps.h"

enum { MAX_SEEN = 64, MAX_NESTED = 4 };

struct walk {
	struct shunt_pass *pass;
	struct shunt_pass_map_operand found;
	LLVMValueRef seen[MAX_SEEN]; /* phis, selects and arguments: cycles end here */
	unsigned nr_seen;
	int nested; /* lookups that the operand came out of, as far as they are followed */
};

static struct shunt_pass_map_operand find_map(struct shunt_pass *pass, LLVMValueRef operand, int nested);

static bool give_up(struct walk *walk, const char *why)
{
	walk->found.why = why;
	return false;
}

static bool same_geometry(const struct shunt_pass_map *a, const struct shunt_pass_map *b)
{
	return a->type == b->type && a->key_size == b->key_size && a->value_size == b->value_size &&
	       a->max_entries == b->max_entries && a->stride == b->stride && a->index_mask == b->index_mask;
}

static bool take(struct walk *walk, const struct shunt_pass_map *map, bool by_handle)
{
	walk->found.by_handle |= by_handle;
	if (!walk->found.map) {
		walk->found.map = map;
		return true;
	}
	if (walk->found.map == map)
		return true;
	walk->found.several = true;
	return same_geometry(walk->found.map, map) || give_up(walk, "may be maps of different type or size");
}

static bool take_symbol(struct walk *walk, LLVMValueRef global)
{
	const struct shunt_pass_options *options = walk->pass->options;
	size_t len = 0;
	const char *name = LLVMGetValueName2(global, &len);

	for (size_t i = 0; i < options->nr_maps; i++) {
		const char *symbol = options->maps[i].symbol;

		if (symbol && strlen(symbol) == len && !memcmp(symbol, name, len))
			return take(walk, &options->maps[i], false);
	}
	return give_up(walk, "is a global that no registered map is named after");
}

static bool take_number(struct walk *walk, LLVMValueRef constant)
{
	const struct shunt_pass_options *options = walk->pass->options;
	unsigned long long number;

	if (LLVMGetIntTypeWidth(LLVMTypeOf(constant)) > 64)
		return give_up(walk, "is wider than a register");
	number = LLVMConstIntGetZExtValue(constant);
	for (size_t i = 0; i < options->nr_maps; i++)
		if (options->maps[i].address && options->maps[i].address == number)
			return take(walk, &options->maps[i], false);
	for (size_t i = 0; i < options->nr_maps; i++)
		if (options->maps[i].has_handle && options->maps[i].handle == number)
			return take(walk, &options->maps[i], true);
	return give_up(walk, "is a number that is neither the address nor the handle of a registered map");
}

static bool visit(struct walk *walk, LLVMValueRef value);

/* Every call of the function, when nothing but calls of its own type uses it. */
static bool visit_argument(struct walk *walk, LLVMValueRef argument)
{
	LLVMValueRef function = LLVMGetParamParent(argument);
	unsigned index = 0;

	if (!shunt_ir_is_local(function))
		return give_up(walk, "is an argument of a function that others may call");
	while (LLVMGetParam(function, index) != argument)
		index++;
	for (LLVMUseRef use = LLVMGetFirstUse(function); use; use = LLVMGetNextUse(use)) {
		LLVMValueRef user = LLVMGetUser(use);

		if (!(LLVMIsACallInst(user) || LLVMIsAInvokeInst(user)) || LLVMGetCalledValue(user) != function ||
		    LLVMGetCalledFunctionType(user) != LLVMGlobalGetValueType(function))
			return give_up(walk, "is an argument of a function whose address is taken");
		for (unsigned i = 0, nr = LLVMGetNumArgOperands(user); i < nr; i++)
			if (LLVMGetOperand(user, i) == function)
				return give_up(walk, "is an argument of a function whose address is taken");
		if (!visit(walk, LLVMGetOperand(user, index)))
			return false;
	}
	return true;
}

static bool visit_phi(struct walk *walk, LLVMValueRef phi)
{
	for (unsigned i = 0, nr = LLVMCountIncoming(phi); i < nr; i++)
		if (!visit(walk, LLVMGetIncomingValue(phi, i)))
			return false;
	return true;
}

static bool is_lookup(LLVMValueRef call)
{
	static const char name[] = "shunt_map_lookup";
	LLVMValueRef callee = LLVMGetCalledValue(call);
	size_t len = 0;

	return shunt_ir_has_prefix(callee, name) && LLVMGetValueName2(callee, &len) && len == strlen(name) &&
	       LLVMGetNumArgOperands(call) == 2;
}

/* A map that was found in a map of maps: of the shape that all of them have, but which one it is only the operand tells. */
static bool visit_call(struct walk *walk, LLVMValueRef call)
{
	struct shunt_pass_map_operand outer;

	if (!is_lookup(call) || walk->nested == MAX_NESTED)
		return give_up(walk, "is the result of a call");
	outer = find_map(walk->pass, LLVMGetOperand(call, 0), walk->nested + 1);
	if (!outer.map || !outer.map->inner)
		return give_up(walk, "comes out of a map whose inner maps are not described");
	if (!take(walk, outer.map->inner, false))
		return false;
	walk->found.several = true;
	return true;
}

static bool visit(struct walk *walk, LLVMValueRef value)
{
	value = shunt_ir_strip(value);
	if (LLVMIsAGlobalVariable(value))
		return take_symbol(walk, value);
	if (LLVMIsAConstantInt(value))
		return take_number(walk, value);
	if (LLVMIsAConstantPointerNull(value))
		return give_up(walk, "may be null");
	for (unsigned i = 0; i < walk->nr_seen; i++)
		if (walk->seen[i] == value)
			return true;
	if (walk->nr_seen == MAX_SEEN)
		return give_up(walk, "comes from too many places");
	walk->seen[walk->nr_seen++] = value;
	if (LLVMIsALoadInst(value)) {
		LLVMValueRef loaded = shunt_ir_loaded_value(value);

		return loaded ? visit(walk, loaded) : give_up(walk, "is loaded from memory that may hold several maps");
	}
	if (LLVMIsASelectInst(value) && LLVMTypeOf(LLVMGetOperand(value, 0)) == LLVMInt1TypeInContext(walk->pass->context))
		return visit(walk, LLVMGetOperand(value, 1)) && visit(walk, LLVMGetOperand(value, 2));
	if (LLVMIsAPHINode(value))
		return visit_phi(walk, value);
	if (LLVMIsAArgument(value))
		return visit_argument(walk, value);
	if (LLVMIsACallInst(value))
		return visit_call(walk, value);
	return give_up(walk, "is not traced to a registered map");
}

static struct shunt_pass_map_operand find_map(struct shunt_pass *pass, LLVMValueRef operand, int nested)
{
	struct walk walk = { .pass = pass, .nested = nested };

	if (!visit(&walk, operand))
		walk.found.map = NULL;
	else if (!walk.found.map)
		walk.found.why = "is never given a value";
	return walk.found;
}

struct shunt_pass_map_operand shunt_pass_find_map(struct shunt_pass *pass, LLVMValueRef operand)
{
	return find_map(pass, operand, 0);
}

bool shunt_pass_has_map_pointer(struct shunt_pass *pass, const struct shunt_pass_map_operand *found)
{
	if (!found->by_handle)
		return true;
	if (!found->map || found->several)
		return false;
	return found->map->address || (found->map->symbol && shunt_ir_declare_variable(pass, found->map->symbol));
}

LLVMValueRef shunt_pass_map_pointer(struct shunt_pass *pass, const struct shunt_pass_map_operand *found, LLVMValueRef value)
{
	LLVMValueRef global;

	if (found->map && !found->several) {
		global = found->map->symbol ? LLVMGetNamedGlobal(pass->module, found->map->symbol) : NULL;
		if (global && LLVMTypeOf(global) == pass->ptr)
			return global;
		if (found->map->address)
			return LLVMConstIntToPtr(LLVMConstInt(pass->i64, found->map->address, 0), pass->ptr);
	}
	return shunt_ir_coerce(pass, value, pass->ptr, false);
}
