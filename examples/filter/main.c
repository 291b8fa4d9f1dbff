/* SPDX-License-Identifier: MIT */
/* usage: filter CAPTURE.pcap FILTER... : compiles each filter, attaches them to one hook, and shows every packet to each. */
#include <stdio.h>
#include <stdlib.h>
#include <pcap/pcap.h>
#include <shunt/dispatcher.h>
#include <shunt/jit.h>
#include <shunt/log.h>
#include <shunt/percpu.h>
#include <shunt/reader.h>
#include "filter.h"

/* The hook: unsigned on_packet(const struct packet *packet, const void *filter). */
SHUNT_DISPATCHER_DEFINE(on_packet, unsigned, (const struct packet *packet));

struct program {
	const char *text;
	struct shunt_jit_module *module;
	void *entry;
	void *passed; /* a per-CPU counter */
};

static int complain(const char *what, const char *why)
{
	fprintf(stderr, "filter: %s: %s\n", what, why);
	return -1;
}

/* Text to an attached program. */
static int start(struct shunt_jit *jit, struct program *program)
{
	struct shunt_jit_module_options options = { .nr_symbols = 1 };
	LLVMContextRef context = LLVMContextCreate();
	LLVMModuleRef module = LLVMModuleCreateWithNameInContext(program->text, context);
	struct shunt_jit_symbol symbol = { .name = "passed" };
	char error[256];

	if (filter_compile(program->text, module, error, sizeof(error))) {
		LLVMDisposeModule(module);
		LLVMContextDispose(context);
		return complain(program->text, error);
	}
	if (shunt_percpu_alloc(sizeof(uint64_t), sizeof(uint64_t), &program->passed)) {
		LLVMDisposeModule(module);
		LLVMContextDispose(context);
		return complain(program->text, shunt_error());
	}
	symbol.address = program->passed;
	options.symbols = &symbol;
	/* From here on the JIT owns module and context. It runs the passes. */
	if (shunt_jit_add(jit, context, module, &options, &program->module))
		return complain(program->text, shunt_error());
	program->entry = shunt_jit_lookup(program->module, "filter");
	if (shunt_dispatcher_attach(shunt_dispatcher_on_packet(), program->entry))
		return complain(program->text, shunt_error());
	return 0;
}

static void show(pcap_t *capture, const struct program *programs, int nr)
{
	struct pcap_pkthdr *header;
	const unsigned char *bytes;

	for (int i = 1; pcap_next_ex(capture, &header, &bytes) == 1; i++) {
		struct packet packet = { bytes, header->caplen };

		printf("%d:", i);
		shunt_read_begin(); /* a batch: all filters of a packet */
		for (int k = 0; k < nr; k++)
			printf(" %u", on_packet(&packet, programs[k].entry));
		shunt_read_end();
		putchar('\n');
	}
}

static void stop(struct program *program)
{
	if (program->entry) {
		shunt_dispatcher_detach(shunt_dispatcher_on_packet(), program->entry);
		printf("%lu passed '%s'\n", (unsigned long)shunt_percpu_sum64(program->passed), program->text);
	}
	if (program->module)
		shunt_jit_remove(program->module);
}

int main(int argc, char **argv)
{
	char error[PCAP_ERRBUF_SIZE];
	struct program *programs = calloc((size_t)argc, sizeof(*programs));
	struct shunt_jit *jit = NULL;
	pcap_t *capture;
	int nr = argc - 2, started = 0;

	if (argc < 3 || !programs) {
		fputs("usage: filter CAPTURE.pcap FILTER...\n", stderr);
		free(programs);
		return 2;
	}
	capture = pcap_open_offline(argv[1], error);
	if (!capture)
		complain(argv[1], error);
	else if (shunt_jit_create(NULL, &jit))
		complain("no compiler", shunt_error());
	for (; jit && started < nr; started++) {
		programs[started].text = argv[2 + started];
		if (start(jit, &programs[started]))
			break;
	}
	if (jit && started == nr)
		show(capture, programs, nr);
	for (int i = 0; jit && i < nr; i++)
		stop(&programs[i]);
	shunt_quiesce();
	for (int i = 0; i < nr; i++)
		shunt_percpu_free(programs[i].passed);
	shunt_jit_destroy(jit);
	if (capture)
		pcap_close(capture);
	free(programs);
	return jit && started == nr ? 0 : 1;
}
