/* SPDX-License-Identifier: MIT */
/* The tutorial's language says of every packet what libpcap says of it, and what is wrong with a bad filter. */
#include <criterion/criterion.h>
#include <pcap/pcap.h>
#include <shunt/jit.h>
#include <shunt/log.h>
#include <shunt/percpu.h>
#include <shunt/reader.h>
#include "examples/filter/filter.h"

typedef unsigned filter_fn(const struct packet *packet);

static struct shunt_jit *jit;
static void *passed;

static void setup(void)
{
	cr_assert_eq(shunt_jit_create(NULL, &jit), 0, "%s", shunt_error());
	cr_assert_eq(shunt_percpu_alloc(8, 8, &passed), 0);
}

static struct shunt_jit_module *add(const char *text)
{
	struct shunt_jit_symbol symbol = { "passed", passed };
	struct shunt_jit_module_options options = { .symbols = &symbol, .nr_symbols = 1 };
	LLVMContextRef context = LLVMContextCreate();
	LLVMModuleRef module = LLVMModuleCreateWithNameInContext(text, context);
	struct shunt_jit_module *compiled;
	char error[256] = "";

	cr_assert_eq(filter_compile(text, module, error, sizeof(error)), 0, "%s: %s", text, error);
	cr_assert_eq(shunt_jit_add(jit, context, module, &options, &compiled), 0, "%s: %s", text, shunt_error());
	return compiled;
}

TestSuite(filter, .init = setup, .timeout = 60);

Test(filter, every_packet_is_judged_as_libpcap_does)
{
	/* The second column where libpcap's words mean IPv6 and ARP, too. */
	static const struct {
		const char *ours, *oracle;
	} filters[] = {
		{ "ip", "ip" },
		{ "tcp", "(ip and tcp)" },
		{ "udp", "(ip and udp)" },
		{ "icmp", "icmp" },
		{ "len > 100", "len > 100" },
		{ "len < 60 or udp", "len < 60 or (ip and udp)" },
		{ "not ip", "not ip" },
		{ "tcp and dst port 80", "(ip and tcp) and (ip and dst port 80)" },
		{ "udp and not src port 53", "(ip and udp) and not (ip and src port 53)" },
		{ "ip and src host 10.0.0.1", "ip and (ip and src host 10.0.0.1)" },
		{ "ip and (dst host 10.0.0.2 or src host 192.168.1.1)", "ip and ((ip and dst host 10.0.0.2) or (ip and src host 192.168.1.1))" },
		{ "tcp and (src port 443 or dst port 443) and len > 70", "(ip and tcp) and ((ip and src port 443) or (ip and dst port 443)) and len > 70" },
		{ "not (tcp or udp or icmp)", "not ((ip and tcp) or (ip and udp) or icmp)" },
		{ "ip and (src port 1000 or dst port 53)", "ip and ((ip and src port 1000) or (ip and dst port 53))" },
	};

	struct shunt_cpu_index index;

	shunt_cpu_index(&index);
	for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++) {
		struct shunt_jit_module *module = add(filters[i].ours);
		filter_fn *filter = (filter_fn *)shunt_jit_lookup(module, "filter");
		uint64_t before = shunt_percpu_sum64(passed), nr = 0;
		char error[PCAP_ERRBUF_SIZE];
		pcap_t *capture = pcap_open_offline(FILTER_CAPTURE, error);
		struct bpf_program oracle;
		struct pcap_pkthdr *header;
		const unsigned char *bytes;

		cr_assert_not_null(capture, "%s", error);
		cr_assert_eq(pcap_compile(capture, &oracle, filters[i].oracle, 1, PCAP_NETMASK_UNKNOWN), 0, "%s", pcap_geterr(capture));
		for (int packet_number = 1; pcap_next_ex(capture, &header, &bytes) == 1; packet_number++) {
			struct packet packet = { bytes, header->caplen };
			/* A cut packet's length is what was captured, to both. */
			struct pcap_pkthdr seen = { .caplen = header->caplen, .len = header->caplen };
			unsigned wanted = pcap_offline_filter(&oracle, &seen, bytes) != 0, got;

			shunt_read_begin();
			got = filter(&packet);
			shunt_read_end();
			nr += got;
			cr_expect_eq(got, wanted, "'%s', packet %d: %u", filters[i].ours, packet_number, got);
		}
		cr_expect_eq(shunt_percpu_sum64(passed) - before, nr, "'%s' counts what it passes", filters[i].ours);
		/* Without rseq the exact addition stays a call. */
		cr_expect_eq(shunt_jit_module_counts(module)->missed, index.source != SHUNT_CPU_RSEQ, "'%s'", filters[i].ours);
		pcap_freecode(&oracle);
		pcap_close(capture);
		shunt_jit_remove(module);
	}
	shunt_jit_destroy(jit);
}

Test(filter, a_packet_that_is_too_short_fails_the_test)
{
	static const unsigned char bytes[34] = { [12] = 8, [14] = 0x45, [23] = 6 }; /* TCP without a byte of TCP */
	struct shunt_jit_module *tcp = add("tcp"), *port = add("dst port 0");

	for (size_t len = 0; len <= sizeof(bytes); len++) {
		struct packet packet = { bytes, len };

		cr_expect_eq(((filter_fn *)shunt_jit_lookup(tcp, "filter"))(&packet), len == sizeof(bytes), "%zu bytes", len);
		cr_expect_eq(((filter_fn *)shunt_jit_lookup(port, "filter"))(&packet), 0u, "%zu bytes", len);
	}
	shunt_jit_destroy(jit);
}

Test(filter, a_bad_filter_is_answered_by_a_sentence)
{
	static const struct {
		const char *text, *error;
	} cases[] = {
		{ "", "a test was expected at ''" },
		{ "tcp and", "a test was expected at ''" },
		{ "tcp udp", "'and', 'or' or the end was expected at 'udp'" },
		{ "tcpx", "a test was expected at 'tcpx'" },
		{ "(tcp", "')' was expected at ''" },
		{ "src tcp", "'host' or 'port' was expected at 'tcp'" },
		{ "dst port 65536", "a number from 0 to 65535 was expected at '65536'" },
		{ "dst port x", "a number from 0 to 65535 was expected at 'x'" },
		{ "src host 10.0.0", "an address such as 10.0.0.1 was expected at ''" },
		{ "src host 10.0.0.256", "a number from 0 to 255 was expected at '256'" },
		{ "len = 5", "'<' or '>' was expected at '= 5'" },
	};
	char deep[600], error[256];

	memset(deep, '(', sizeof(deep) - 1);
	deep[sizeof(deep) - 1] = '\0';
	for (size_t i = 0; i <= sizeof(cases) / sizeof(cases[0]); i++) {
		const bool is_deep = i == sizeof(cases) / sizeof(cases[0]);
		LLVMContextRef context = LLVMContextCreate();
		LLVMModuleRef module = LLVMModuleCreateWithNameInContext("bad", context);

		cr_expect_eq(filter_compile(is_deep ? deep : cases[i].text, module, error, sizeof(error)), -1);
		cr_expect_str_eq(error, is_deep ? "the filter is nested more than 64 deep" : cases[i].error);
		LLVMDisposeModule(module);
		LLVMContextDispose(context);
	}
	shunt_jit_destroy(jit);
}
