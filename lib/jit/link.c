/* SPDX-License-Identifier: MIT */
/*
 * From an object to running code: a JITDylib of its own for each object, with the addresses it needs as absolute symbols, linked at once
 * so that every error comes out here. One link at a time for each jit: ORC lets any thread run any pending unit, and what the linking layer
 * reports must reach the module that it is about.
 */
#include "lib/jit/jit_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <llvm-c/Error.h>
#include "runtime/log.h"

/* The link in progress; its errors, first one each. */
struct jit_link {
	struct shunt_jit_module *module;
	int error;
	char message[512];
};

/* This thread's link: ORC's error reporter is one for the session, and a removal on the reclaimer may report beside a link. */
static _Thread_local struct jit_link *own_link;

void jit_link_failed(void *user, int err)
{
	struct shunt_jit *jit = user;

	if (!jit->link->error)
		jit->link->error = err;
}

/* ORC reports through this what went wrong; a lookup's own error only lists the symbols that did not come to be. */
void jit_link_report(void *user, LLVMErrorRef error)
{
	char *message = LLVMGetErrorMessage(error);

	if (own_link) {
		if (!own_link->message[0])
			snprintf(own_link->message, sizeof(own_link->message), "%s", message);
	} else {
		shunt_logf(SHUNT_LOG_WARN, "LLVM reports: %s", message);
	}
	LLVMDisposeErrorMessage(message);
}

void jit_link_symbol(void *user, const char *name, size_t name_len, void *address, size_t size)
{
	struct shunt_jit *jit = user;
	struct shunt_jit_module *module = jit->link->module;
	struct jit_symbol *symbol;
	char *copy;

	if (module->nr_symbols == module->max_symbols) {
		size_t max = module->max_symbols ? 2 * module->max_symbols : 8;
		struct jit_symbol *symbols = realloc(module->symbols, max * sizeof(*symbols));

		if (!symbols) {
			jit_link_failed(jit, -ENOMEM);
			return;
		}
		module->symbols = symbols;
		module->max_symbols = max;
	}
	copy = strndup(name, name_len);
	if (!copy) {
		jit_link_failed(jit, -ENOMEM);
		return;
	}
	symbol = &module->symbols[module->nr_symbols++];
	*symbol = (struct jit_symbol){ copy, address, size };
}

static int compare_symbols(const void *a, const void *b)
{
	return strcmp(((const struct jit_symbol *)a)->name, ((const struct jit_symbol *)b)->name);
}

/* A lookup's answer; it may come on another thread. */
struct lookup {
	pthread_mutex_t mutex;
	pthread_cond_t answered;
	bool done;
	LLVMErrorRef error;
};

static void take_answer(LLVMErrorRef error, LLVMOrcCSymbolMapPairs result, size_t nr, void *user)
{
	struct lookup *lookup = user;

	pthread_mutex_lock(&lookup->mutex);
	lookup->error = error;
	lookup->done = true;
	pthread_cond_signal(&lookup->answered);
	pthread_mutex_unlock(&lookup->mutex);
}

static LLVMErrorRef materialise(struct shunt_jit *jit, LLVMOrcJITDylibRef dylib, LLVMOrcCLookupSet names, size_t nr)
{
	struct lookup lookup = { .mutex = PTHREAD_MUTEX_INITIALIZER, .answered = PTHREAD_COND_INITIALIZER };
	LLVMOrcCJITDylibSearchOrderElement order = { dylib, LLVMOrcJITDylibLookupFlagsMatchAllSymbols };

	LLVMOrcExecutionSessionLookup(jit->session, LLVMOrcLookupKindStatic, &order, 1, names, nr, take_answer, &lookup);
	pthread_mutex_lock(&lookup.mutex);
	while (!lookup.done)
		pthread_cond_wait(&lookup.answered, &lookup.mutex);
	pthread_mutex_unlock(&lookup.mutex);
	return lookup.error;
}

/* Absolute symbols for what the object needs; 0 and an array for LLVMOrcAbsoluteSymbols, whose names the caller owns. */
static int resolve_undefined(struct shunt_jit *jit, const struct jit_object_symbols *names, const struct shunt_jit_symbol *symbols,
			     size_t nr_symbols, LLVMOrcCSymbolMapPair *pairs, size_t *nr_pairs)
{
	*nr_pairs = 0;
	for (size_t i = 0; i < names->nr_undefined; i++) {
		uint64_t address;
		int err = jit_symbol_resolve(names->undefined[i].name, symbols, nr_symbols, &address);

		if (err && names->undefined[i].weak)
			continue;
		if (err)
			return err;
		pairs[(*nr_pairs)++] = (LLVMOrcCSymbolMapPair){
			.Name = LLVMOrcExecutionSessionIntern(jit->session, names->undefined[i].name),
			.Sym = { address, { LLVMJITSymbolGenericFlagsExported | LLVMJITSymbolGenericFlagsCallable, 0 } },
		};
	}
	return 0;
}

/* Turns what a failed link left behind into one error. Consumes error, which may be none. */
static int link_error(const struct jit_link *link, LLVMErrorRef error)
{
	char *text = error ? LLVMGetErrorMessage(error) : NULL;
	const char *message = link->message[0] ? link->message : text ? text : "out of memory";
	int err = link->error ? -link->error : strstr(message, "out of range") ? ERANGE : EINVAL;

	err = shunt_fail(err, "linking the module failed: %s", message);
	LLVMDisposeErrorMessage(text);
	return err;
}

static void remove_dylib(struct shunt_jit *jit, LLVMOrcJITDylibRef dylib)
{
	LLVMErrorRef error = jit_remove_dylib(jit->session, dylib);

	if (error) {
		char *message = LLVMGetErrorMessage(error);

		shunt_logf(SHUNT_LOG_WARN, "removing a module: %s", message);
		LLVMDisposeErrorMessage(message);
	}
	LLVMOrcSymbolStringPoolClearDeadEntries(LLVMOrcExecutionSessionGetSymbolStringPool(jit->session));
}

static void free_symbols(struct shunt_jit_module *module)
{
	for (size_t i = 0; i < module->nr_symbols; i++)
		free(module->symbols[i].name);
	free(module->symbols);
	module->symbols = NULL;
	module->nr_symbols = module->max_symbols = 0;
}

/* Under link_mutex. Consumes object and the names in pairs and wanted. */
static int link_in_dylib(struct shunt_jit *jit, LLVMMemoryBufferRef object, LLVMOrcCSymbolMapPairs pairs, size_t nr_pairs,
			 LLVMOrcCLookupSet wanted, size_t nr_wanted, struct shunt_jit_module *module)
{
	struct jit_link link = { .module = module };
	LLVMErrorRef error = NULL;
	char name[32];
	int err = 0;

	snprintf(name, sizeof(name), "shunt.%llu", (unsigned long long)jit->nr_links++);
	jit->link = own_link = &link;
	/* Bare: the platform's per-dylib support module would be dead weight in each. */
	module->dylib = LLVMOrcExecutionSessionCreateBareJITDylib(jit->session, name);
	if (nr_pairs) {
		LLVMOrcMaterializationUnitRef unit = LLVMOrcAbsoluteSymbols(pairs, nr_pairs);

		error = LLVMOrcJITDylibDefine(module->dylib, unit);
		if (error)
			LLVMOrcDisposeMaterializationUnit(unit);
	}
	if (!error)
		error = LLVMOrcLLJITAddObjectFile(jit->lljit, module->dylib, object);
	else
		LLVMDisposeMemoryBuffer(object);
	if (!error && nr_wanted)
		error = materialise(jit, module->dylib, wanted, nr_wanted);
	else
		for (size_t i = 0; i < nr_wanted; i++)
			LLVMOrcReleaseSymbolStringPoolEntry(wanted[i].Name);
	if (error || link.error) {
		err = link_error(&link, error);
		remove_dylib(jit, module->dylib);
		module->dylib = NULL;
		free_symbols(module);
	}
	jit->link = own_link = NULL;
	return err;
}

int jit_link(struct shunt_jit *jit, LLVMMemoryBufferRef object, const struct shunt_jit_symbol *symbols, size_t nr_symbols,
	     struct shunt_jit_module *module)
{
	struct jit_object_symbols names;
	LLVMOrcCSymbolMapPair *pairs = NULL;
	LLVMOrcCLookupSetElement *wanted = NULL;
	size_t nr_pairs = 0;
	int err;

	err = jit_object_read(LLVMGetBufferStart(object), LLVMGetBufferSize(object), &names);
	if (err) {
		LLVMDisposeMemoryBuffer(object);
		return err;
	}
	pairs = calloc(names.nr_undefined + 1, sizeof(*pairs));
	wanted = calloc(names.nr_defined + 1, sizeof(*wanted));
	if (!pairs || !wanted)
		err = shunt_fail(ENOMEM, "out of memory for the symbols of a module");
	else
		err = resolve_undefined(jit, &names, symbols, nr_symbols, pairs, &nr_pairs);
	if (err) {
		for (size_t i = 0; i < nr_pairs; i++)
			LLVMOrcReleaseSymbolStringPoolEntry(pairs[i].Name);
		LLVMDisposeMemoryBuffer(object);
		goto out;
	}
	for (size_t i = 0; i < names.nr_defined; i++) {
		wanted[i].Name = LLVMOrcExecutionSessionIntern(jit->session, names.defined[i]);
		wanted[i].LookupFlags = LLVMOrcSymbolLookupFlagsRequiredSymbol;
	}
	pthread_mutex_lock(&jit->link_mutex);
	err = link_in_dylib(jit, object, pairs, nr_pairs, wanted, names.nr_defined, module);
	pthread_mutex_unlock(&jit->link_mutex);
	if (!err && module->nr_symbols)
		qsort(module->symbols, module->nr_symbols, sizeof(*module->symbols), compare_symbols);
out:
	free(pairs);
	free(wanted);
	jit_object_fini(&names);
	return err;
}

void jit_module_release(struct shunt_jit_module *module)
{
	if (module->dylib)
		remove_dylib(module->jit, module->dylib);
	free_symbols(module);
	LLVMDisposeMessage(module->ir);
	free(module);
}
