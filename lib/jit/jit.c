/* SPDX-License-Identifier: MIT */
/*
 * The public side: a JIT and its modules, their life and their lookup. Expected load: thousands of small modules, each compiled once (a
 * millisecond), looked up a few times, and removed while others run.
 */
#include "lib/jit/jit_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <llvm-c/Error.h>
#include <llvm-c/Target.h>
#include <shunt/reader.h>
#include "runtime/log.h"

#define CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))

static pthread_once_t target_once = PTHREAD_ONCE_INIT;
static bool have_target;

static void init_target(void)
{
	have_target = !LLVMInitializeNativeTarget() && !LLVMInitializeNativeAsmPrinter() && !LLVMInitializeNativeAsmParser();
}

static int describe_machine(struct shunt_jit *jit)
{
	LLVMTargetMachineRef machine;
	LLVMTargetDataRef layout;

	jit->triple = LLVMGetDefaultTargetTriple();
	jit->cpu = LLVMGetHostCPUName();
	jit->features = LLVMGetHostCPUFeatures();
	machine = jit_target_machine(jit);
	if (!machine)
		return shunt_fail(ENOTSUP, "this LLVM has no code generator for '%s'", jit->triple);
	layout = LLVMCreateTargetDataLayout(machine);
	jit->data_layout = LLVMCopyStringRepOfTargetData(layout);
	LLVMDisposeTargetData(layout);
	LLVMDisposeTargetMachine(machine);
	return 0;
}

static int create_lljit(struct shunt_jit *jit)
{
	LLVMOrcLLJITBuilderRef builder = LLVMOrcCreateLLJITBuilder();
	LLVMErrorRef error;

	LLVMOrcLLJITBuilderSetJITTargetMachineBuilder(builder,
						      LLVMOrcJITTargetMachineBuilderCreateFromTargetMachine(jit_target_machine(jit)));
	LLVMOrcLLJITBuilderSetObjectLinkingLayerCreator(builder, jit_create_linking_layer, &jit->layer);
	error = LLVMOrcCreateLLJIT(&jit->lljit, builder);
	if (error) {
		char *message = LLVMGetErrorMessage(error);
		int err = shunt_fail(ENOTSUP, "LLVM cannot make a JIT for '%s': %s", jit->triple, message);

		jit->lljit = NULL;
		LLVMDisposeErrorMessage(message);
		return err;
	}
	jit->session = LLVMOrcLLJITGetExecutionSession(jit->lljit);
	LLVMOrcExecutionSessionSetErrorReporter(jit->session, jit_link_report, jit);
	return 0;
}

static void dispose(struct shunt_jit *jit)
{
	LLVMErrorRef error = jit->lljit ? LLVMOrcDisposeLLJIT(jit->lljit) : NULL;

	if (error)
		LLVMConsumeError(error);
	LLVMDisposeMessage(jit->triple);
	LLVMDisposeMessage(jit->cpu);
	LLVMDisposeMessage(jit->features);
	LLVMDisposeMessage(jit->data_layout);
	pthread_mutex_destroy(&jit->link_mutex);
	pthread_mutex_destroy(&jit->list_mutex);
	free(jit);
}

int shunt_jit_create(const struct shunt_jit_options *options, struct shunt_jit **out)
{
	struct shunt_jit *jit;
	int err;

	if (options && options->opt_level > 3)
		return shunt_fail(EINVAL, "opt_level %u: LLVM has 0 to 3", options->opt_level);
	pthread_once(&target_once, init_target);
	if (!have_target)
		return shunt_fail(ENOTSUP, "this LLVM was built without a code generator for this machine");
	jit = calloc(1, sizeof(*jit));
	if (!jit)
		return shunt_fail(ENOMEM, "out of memory for a JIT");
	jit->opt_level = options ? options->opt_level : 2;
	jit->keep_ir = options && options->keep_ir;
	jit->layer = (struct jit_linking_layer){ options ? options->arena : NULL, jit, jit_link_symbol, jit_link_failed };
	jit->refs = 1;
	pthread_mutex_init(&jit->link_mutex, NULL);
	pthread_mutex_init(&jit->list_mutex, NULL);
	err = describe_machine(jit);
	if (!err)
		err = create_lljit(jit);
	if (err) {
		dispose(jit);
		return err;
	}
	*out = jit;
	return 0;
}

/* The last one out, be it the owner or the reclaimer with a removed module, takes the JIT down. */
static void put(struct shunt_jit *jit)
{
	bool last;

	pthread_mutex_lock(&jit->list_mutex);
	last = !--jit->refs;
	pthread_mutex_unlock(&jit->list_mutex);
	if (last)
		dispose(jit);
}

static void list_add(struct shunt_jit *jit, struct shunt_jit_module *module)
{
	pthread_mutex_lock(&jit->list_mutex);
	jit->refs++;
	module->next = jit->modules;
	module->pprev = &jit->modules;
	if (module->next)
		module->next->pprev = &module->next;
	jit->modules = module;
	pthread_mutex_unlock(&jit->list_mutex);
}

static void list_del(struct shunt_jit_module *module)
{
	struct shunt_jit *jit = module->jit;

	pthread_mutex_lock(&jit->list_mutex);
	*module->pprev = module->next;
	if (module->next)
		module->next->pprev = module->pprev;
	pthread_mutex_unlock(&jit->list_mutex);
}

static int link_and_list(struct shunt_jit *jit, LLVMMemoryBufferRef object, const struct shunt_jit_module_options *options,
			 struct shunt_jit_module *module)
{
	int err = jit_link(jit, object, options ? options->symbols : NULL, options ? options->nr_symbols : 0, module);

	if (!err)
		list_add(jit, module);
	return err;
}

int jit_add_object(struct shunt_jit *jit, LLVMMemoryBufferRef object, const struct shunt_jit_module_options *options,
		   struct shunt_jit_module **out)
{
	struct shunt_jit_module *module = calloc(1, sizeof(*module));
	int err;

	if (!module) {
		LLVMDisposeMemoryBuffer(object);
		return shunt_fail(ENOMEM, "out of memory for a module");
	}
	module->jit = jit;
	err = link_and_list(jit, object, options, module);
	if (err)
		jit_module_release(module);
	else
		*out = module;
	return err;
}

int shunt_jit_add(struct shunt_jit *jit, LLVMContextRef context, LLVMModuleRef llvm_module,
		  const struct shunt_jit_module_options *options, struct shunt_jit_module **out)
{
	struct shunt_jit_module *module = calloc(1, sizeof(*module));
	LLVMMemoryBufferRef object = NULL;
	int err;

	if (!module) {
		err = shunt_fail(ENOMEM, "out of memory for a module");
	} else if (!context || !llvm_module || LLVMGetModuleContext(llvm_module) != context) {
		err = shunt_fail(EINVAL, "shunt_jit_add takes a module and the context that it lives in");
	} else {
		module->jit = jit;
		err = jit_compile(jit, context, llvm_module, options, module, &object);
	}
	if (llvm_module)
		LLVMDisposeModule(llvm_module);
	if (context)
		LLVMContextDispose(context);
	if (!err)
		err = link_and_list(jit, object, options, module);
	if (err) {
		if (module)
			jit_module_release(module);
		return err;
	}
	*out = module;
	return 0;
}

static const struct jit_symbol *find(const struct shunt_jit_module *module, const char *name)
{
	size_t low = 0, high = module->nr_symbols;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		int order = strcmp(name, module->symbols[mid].name);

		if (!order)
			return &module->symbols[mid];
		if (order < 0)
			high = mid;
		else
			low = mid + 1;
	}
	return NULL;
}

void *shunt_jit_lookup(struct shunt_jit_module *module, const char *name)
{
	const struct jit_symbol *symbol = find(module, name);

	return symbol ? symbol->address : NULL;
}

int shunt_jit_module_code(const struct shunt_jit_module *module, const char *name, const void **code, size_t *len)
{
	const struct jit_symbol *symbol = find(module, name);

	if (!symbol)
		return shunt_fail(ENOENT, "the module has no function '%s'", name);
	*code = symbol->address;
	*len = symbol->size;
	return 0;
}

const struct shunt_pass_counts *shunt_jit_module_counts(const struct shunt_jit_module *module)
{
	return &module->counts;
}

const char *shunt_jit_module_ir(const struct shunt_jit_module *module)
{
	return module->ir;
}

const char *shunt_jit_triple(const struct shunt_jit *jit)
{
	return jit->triple;
}

const char *shunt_jit_data_layout(const struct shunt_jit *jit)
{
	return jit->data_layout;
}

/* On the reclaimer. The pack frees the code after one more grace period, since it cannot know that ours is over. */
static void release_after_grace(struct shunt_grace_item *item)
{
	struct shunt_jit_module *module = CONTAINER_OF(item, struct shunt_jit_module, grace);
	struct shunt_jit *jit = module->jit;

	jit_module_release(module);
	put(jit);
}

void shunt_jit_remove(struct shunt_jit_module *module)
{
	if (!module)
		return;
	list_del(module);
	/* The unwinder's tables go with the tracker: a reader may still be in the code and unwind through it. */
	module->grace.release = release_after_grace;
	shunt_grace_defer(&module->grace);
}

void shunt_jit_destroy(struct shunt_jit *jit)
{
	if (!jit)
		return;
	while (jit->modules)
		shunt_jit_remove(jit->modules);
	/* In a read section this cannot wait: the reclaimer then finishes the job. Twice, for what releasing the modules freed. */
	if (!shunt_quiesce())
		shunt_quiesce();
	put(jit);
}
