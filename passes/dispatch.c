/* SPDX-License-Identifier: MIT */
/*
 * shunt-dispatch: a marked indirect call becomes a direct call of the dispatcher's stub.
 *
 * The program pointer goes along as one more argument with attribute nest, after the last fixed parameter: r10 on x86-64, x18 on
 * arm64, no register that the program's own arguments use. Everything else of the call stays: arguments and their attributes,
 * calling convention, tail-call kind, bundles, metadata, debug location. The mark goes, so that a second run finds nothing. Left
 * alone with a remark are the calls where nest would not reach its register, or where the rest of the call would change its
 * meaning.
 */
#include <ctype.h>
#include <string.h>
#include <llvm-c/DebugInfo.h>
#include "passes/ir.h"

enum { MAX_NAME = 63 };

/* LLVM's numbers (CallingConv.h); the C API has no names for some of them. */
enum {
	CC_C = 0,
	CC_FAST = 8,
	CC_COLD = 9,
	CC_PRESERVE_MOST = 14,
	CC_PRESERVE_ALL = 15,
	CC_SWIFT = 16,
	CC_TAIL = 18,
	CC_SWIFT_TAIL = 20,
	CC_X86_64_SYSV = 78,
	CC_WIN64 = 79,
	CC_AARCH64_VECTOR = 97,
	CC_AARCH64_SVE_VECTOR = 98,
};

/* Conventions under which LLVM 19 passes nest in the stub's register, found by trying each. */
static bool has_nest_register(bool arm64, unsigned convention)
{
	switch (convention) {
	case CC_C:
	case CC_FAST:
	case CC_PRESERVE_MOST:
	case CC_PRESERVE_ALL:
	case CC_SWIFT:
	case CC_TAIL:
	case CC_SWIFT_TAIL:
		return true;
	case CC_COLD:
	case CC_X86_64_SYSV:
	case CC_WIN64:
		return !arm64;
	case CC_AARCH64_VECTOR:
	case CC_AARCH64_SVE_VECTOR:
		return arm64;
	default:
		return false;
	}
}

static unsigned attribute_kind(const char *name)
{
	return LLVMGetEnumAttributeKindForName(name, strlen(name));
}

static bool has_argument_attribute(LLVMValueRef call, const char *name)
{
	unsigned kind = attribute_kind(name);

	for (unsigned i = 1, nr = LLVMGetNumArgOperands(call); i <= nr; i++)
		if (LLVMGetCallSiteEnumAttribute(call, i, kind))
			return true;
	return false;
}

/* Bundles that say something of the pointer that is no longer called, or of the argument list. */
static bool has_blocking_bundle(struct shunt_pass *pass, LLVMValueRef call)
{
	static const char *const tags[] = { "kcfi", "ptrauth", "cfguardtarget", "preallocated", NULL };

	return shunt_ir_has_bundle(pass, call, tags);
}

static bool has_string_attribute(LLVMValueRef function, const char *key, const char *part)
{
	LLVMAttributeRef attribute =
		LLVMGetStringAttributeAtIndex(function, LLVMAttributeFunctionIndex, key, (unsigned)strlen(key));
	unsigned len = 0;
	const char *value;

	if (!attribute)
		return false;
	value = LLVMGetStringAttributeValue(attribute, &len);
	return value && memmem(value, len, part, strlen(part));
}

/* arm64: code of this function must not write x18, which LLVM would not notice. */
static bool is_x18_taken(struct shunt_pass *pass, LLVMValueRef call)
{
	LLVMValueRef function = LLVMGetBasicBlockParent(LLVMGetInstructionParent(call));

	if (!pass->arm64)
		return false;
	return pass->x18_is_taken || has_string_attribute(function, "target-features", "+reserve-x18") ||
	       LLVMGetEnumAttributeAtIndex(function, LLVMAttributeFunctionIndex, attribute_kind("shadowcallstack"));
}

/* Whether a musttail call may get one more parameter than its caller has. */
static bool may_change_prototype(LLVMValueRef call, unsigned convention)
{
	if (!LLVMIsACallInst(call) || LLVMGetTailCallKind(call) != LLVMTailCallKindMustTail)
		return true;
	return convention == CC_TAIL || convention == CC_SWIFT_TAIL;
}

struct blocker {
	const char *name;
	const char *why;
};

/* Why the call cannot become a dispatch; name NULL when it can. */
static struct blocker find_blocker(struct shunt_pass *pass, LLVMValueRef call)
{
	LLVMValueRef callee = LLVMGetCalledValue(call);
	unsigned convention = LLVMGetInstructionCallConv(call);

	if (LLVMIsACallBrInst(call))
		return (struct blocker){ "CallBr", "a callbr cannot be called through a stub" };
	if (LLVMIsAInlineAsm(callee))
		return (struct blocker){ "InlineAsm", "inline assembly is no program" };
	if (LLVMIsAFunction(callee) || LLVMIsAGlobalAlias(callee) || LLVMIsAGlobalIFunc(callee))
		return (struct blocker){ "DirectCall", "it is direct already" };
	if (LLVMIsAUndefValue(callee) || LLVMIsAConstantPointerNull(callee))
		return (struct blocker){ "NoProgram", "its pointer is null or undefined" };
	if (LLVMTypeOf(callee) != pass->ptr)
		return (struct blocker){ "AddressSpace", "its pointer is in another address space" };
	if (!has_nest_register(pass->arm64, convention))
		return (struct blocker){ "CallingConvention", "its calling convention has no register for the program pointer" };
	if (!may_change_prototype(call, convention))
		return (struct blocker){ "MustTail", "a musttail call needs its caller's prototype, which has no program pointer" };
	if (has_argument_attribute(call, "inalloca") || has_argument_attribute(call, "preallocated"))
		return (struct blocker){ "InAlloca", "its arguments lie in memory that must be the last parameter" };
	if (has_argument_attribute(call, "nest"))
		return (struct blocker){ "NestInUse", "it passes a static chain of its own" };
	if (is_x18_taken(pass, call))
		return (struct blocker){ "X18Reserved",
					 "x18 is reserved here, by the platform, a shadow call stack or +reserve-x18" };
	if (!shunt_ir_can_copy(call))
		return (struct blocker){ "TooLarge", "it has too many arguments, attributes or bundles" };
	if (has_blocking_bundle(pass, call))
		return (struct blocker){ "Bundle",
					 "an operand bundle (kcfi, ptrauth or the like) is about the pointer that it calls" };
	return (struct blocker){ NULL, NULL };
}

/* Reads NAME of !{!"NAME"}. */
static bool read_name(LLVMValueRef mark, char name[MAX_NAME + 1])
{
	unsigned len = 0;
	LLVMValueRef operand = NULL;
	const char *text;

	if (LLVMGetMDNodeNumOperands(mark) != 1)
		return false;
	LLVMGetMDNodeOperands(mark, &operand);
	if (!operand || !LLVMIsAMDString(operand))
		return false;
	text = LLVMGetMDString(operand, &len);
	if (!len || len > MAX_NAME || isdigit((unsigned char)text[0]))
		return false;
	for (unsigned i = 0; i < len; i++)
		if (!isalnum((unsigned char)text[i]) && text[i] != '_')
			return false;
	memcpy(name, text, len);
	name[len] = '\0';
	return true;
}

/* The call's type with a pointer after the last fixed parameter. */
static LLVMTypeRef stub_type(struct shunt_pass *pass, LLVMTypeRef type)
{
	unsigned nr = LLVMCountParamTypes(type);
	LLVMTypeRef *types = pass->scratch->types;

	LLVMGetParamTypes(type, types);
	types[nr] = pass->ptr;
	return LLVMFunctionType(LLVMGetReturnType(type), types, nr + 1, LLVMIsFunctionVarArg(type));
}

/* The file that defines the dispatcher in C has the stub as bytes that are defined elsewhere: then these become a function. */
static LLVMValueRef declare_in_place_of_bytes(struct shunt_pass *pass, const char *symbol, LLVMTypeRef type)
{
	LLVMValueRef bytes = LLVMGetNamedGlobal(pass->module, symbol), stub;

	if (!bytes || !LLVMIsDeclaration(bytes) || LLVMIsThreadLocal(bytes) || LLVMTypeOf(bytes) != pass->ptr)
		return NULL;
	LLVMSetValueName2(bytes, "", 0);
	stub = shunt_ir_declare_symbol(pass, symbol, type);
	if (stub) {
		LLVMReplaceAllUsesWith(bytes, stub);
		LLVMDeleteGlobal(bytes);
	}
	return stub;
}

/*
 * Hidden, since a lazily bound PLT entry would overwrite the nest register. "thunk" tells LLVM that the symbol forwards whatever it
 * is called with: without it, a second call of the same stub with another prototype would have its arguments rearranged to fit the
 * first.
 */
static LLVMValueRef declare_stub(struct shunt_pass *pass, const char *symbol, LLVMTypeRef type, unsigned convention)
{
	LLVMValueRef stub = LLVMGetNamedFunction(pass->module, symbol);

	if (!stub) {
		stub = declare_in_place_of_bytes(pass, symbol, type);
		if (!stub)
			stub = shunt_ir_declare_symbol(pass, symbol, type);
		if (!stub)
			return NULL;
		LLVMSetFunctionCallConv(stub, convention);
		shunt_ir_add_attribute(pass, stub, LLVMCountParamTypes(type), "nest");
	}
	if (LLVMIsDeclaration(stub)) {
		LLVMSetVisibility(stub, LLVMHiddenVisibility);
		LLVMAddTargetDependentFunctionAttr(stub, "thunk", "");
	}
	return stub;
}

/* Metadata and debug location of the old call, the mark excepted. */
static void copy_metadata(struct shunt_pass *pass, LLVMValueRef from, LLVMValueRef to, unsigned mark_kind)
{
	size_t nr = 0;
	LLVMValueMetadataEntry *entries = LLVMInstructionGetAllMetadataOtherThanDebugLoc(from, &nr);

	for (unsigned i = 0; i < nr; i++) {
		unsigned kind = LLVMValueMetadataEntriesGetKind(entries, i);
		LLVMMetadataRef metadata = LLVMValueMetadataEntriesGetMetadata(entries, i);

		if (kind != mark_kind)
			LLVMSetMetadata(to, kind, LLVMMetadataAsValue(pass->context, metadata));
	}
	LLVMDisposeValueMetadataEntries(entries);
	LLVMInstructionSetDebugLoc(to, LLVMInstructionGetDebugLoc(from));
}

static LLVMValueRef build_call(struct shunt_pass *pass, LLVMValueRef call, LLVMTypeRef type, LLVMValueRef stub)
{
	unsigned fixed = LLVMCountParamTypes(type) - 1, nr = LLVMGetNumArgOperands(call), nr_bundles;
	LLVMValueRef *args = pass->scratch->args, made;

	for (unsigned i = 0; i < nr; i++)
		args[i < fixed ? i : i + 1] = LLVMGetOperand(call, i);
	args[fixed] = LLVMGetCalledValue(call);
	nr_bundles = shunt_ir_bundles(pass, call);
	if (LLVMIsAInvokeInst(call)) {
		made = LLVMBuildInvokeWithOperandBundles(pass->builder, type, stub, args, nr + 1, LLVMGetNormalDest(call),
							 LLVMGetUnwindDest(call), pass->scratch->bundles, nr_bundles, "");
	} else {
		made = LLVMBuildCallWithOperandBundles(pass->builder, type, stub, args, nr + 1, pass->scratch->bundles, nr_bundles,
						       "");
		LLVMSetTailCallKind(made, LLVMGetTailCallKind(call));
	}
	shunt_ir_free_bundles(pass, nr_bundles);
	LLVMSetInstructionCallConv(made, LLVMGetInstructionCallConv(call));
	shunt_ir_copy_attributes(pass, call, LLVMAttributeFunctionIndex, made, LLVMAttributeFunctionIndex);
	shunt_ir_copy_attributes(pass, call, LLVMAttributeReturnIndex, made, LLVMAttributeReturnIndex);
	for (unsigned i = 0; i < nr; i++)
		shunt_ir_copy_attributes(pass, call, i + 1, made, i < fixed ? i + 1 : i + 2);
	LLVMAddCallSiteAttribute(made, fixed + 1, LLVMCreateEnumAttribute(pass->context, attribute_kind("nest"), 0));
	if (LLVMCanValueUseFastMathFlags(call))
		LLVMSetFastMathFlags(made, LLVMGetFastMathFlags(call));
	return made;
}

void shunt_pass_dispatch(struct shunt_pass *pass, LLVMValueRef call)
{
	unsigned kind = LLVMGetMDKindIDInContext(pass->context, SHUNT_DISPATCH_MD, strlen(SHUNT_DISPATCH_MD));
	LLVMValueRef mark = LLVMGetMetadata(call, kind), stub, made;
	char symbol[sizeof(SHUNT_STUB_PREFIX) + MAX_NAME] = SHUNT_STUB_PREFIX;
	char *name = symbol + sizeof(SHUNT_STUB_PREFIX) - 1;
	struct blocker blocker;
	LLVMTypeRef type;

	if (!mark)
		return;
	if (!read_name(mark, name)) {
		shunt_pass_missed(pass, call, "BadMark", SHUNT_DISPATCH_MD,
				  "call left: !" SHUNT_DISPATCH_MD
				  " wants one string, the dispatcher's name: a C identifier of at most %d bytes",
				  MAX_NAME);
		return;
	}
	blocker = find_blocker(pass, call);
	if (blocker.name) {
		shunt_pass_missed(pass, call, blocker.name, name, "call left: %s", blocker.why);
		return;
	}
	type = stub_type(pass, LLVMGetCalledFunctionType(call));
	stub = declare_stub(pass, symbol, type, LLVMGetInstructionCallConv(call));
	if (!stub) {
		shunt_pass_missed(pass, call, "NameTaken", name, "call left: '%s' is not a function in this module", symbol);
		return;
	}
	/* LLVM takes a call that disagrees with its function's convention for unreachable. */
	if (LLVMGetFunctionCallConv(stub) != LLVMGetInstructionCallConv(call)) {
		shunt_pass_missed(pass, call, "ConventionMismatch", name,
				  "call left: an earlier call of '%s' uses another calling convention", symbol);
		return;
	}
	shunt_ir_at(pass, call);
	made = build_call(pass, call, type, stub);
	copy_metadata(pass, call, made, kind);
	shunt_pass_passed(pass, call, "Dispatched", name, "indirect call became a direct call of '%s'", symbol);
	pass->counts->dispatches++;
	shunt_ir_replace(pass, call, made, false);
}
