/* SPDX-License-Identifier: MIT */
/*
 * The flow hash that spreads frames over queues, as a network device's receive-side scaling does. Symmetric: the two endpoints are
 * hashed apart and combined by addition, so a connection's both directions meet in one queue.
 */
#include "lib/replay/capture.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <xxhash.h>

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define ETHERTYPE_VLAN 0x8100
#define ETHERTYPE_QINQ 0x88a8
#define MAX_VLAN_TAGS 2

static uint16_t read_be16(const uint8_t *bytes)
{
	return (uint16_t)(bytes[0] << 8 | bytes[1]);
}

/* One endpoint: its address and, for protocols with ports, its port. */
static uint32_t hash_endpoint(const uint8_t *address, size_t len, const uint8_t *port)
{
	uint8_t key[18] = { 0 };

	memcpy(key, address, len);
	if (port)
		memcpy(key + 16, port, 2);
	return XXH32(key, sizeof(key), 0);
}

static uint32_t hash_flow(const uint8_t *source, const uint8_t *destination, size_t len, uint8_t protocol, const uint8_t *l4,
			  const uint8_t *end)
{
	bool has_ports = (protocol == IPPROTO_TCP || protocol == IPPROTO_UDP) && l4 && end - l4 >= 4;
	uint32_t sum = hash_endpoint(source, len, has_ports ? l4 : NULL) + hash_endpoint(destination, len, has_ports ? l4 + 2 : NULL);

	return XXH32(&sum, sizeof(sum), protocol);
}

uint32_t shunt_replay_flow_hash(const uint8_t *frame, uint32_t len)
{
	const uint8_t *end = frame + len;
	const uint8_t *l3 = frame + 14;
	uint16_t type;

	if (len < 14)
		return 0;
	type = read_be16(frame + 12);
	for (int tag = 0; tag < MAX_VLAN_TAGS && (type == ETHERTYPE_VLAN || type == ETHERTYPE_QINQ) && end - l3 >= 4; tag++) {
		type = read_be16(l3 + 2);
		l3 += 4;
	}
	if (type == ETHERTYPE_IPV4 && end - l3 >= 20) {
		unsigned header_len = (l3[0] & 15u) * 4;
		/* Later fragments carry no ports; then no fragment of the packet uses them. */
		bool is_fragment = read_be16(l3 + 6) & 0x3fff;
		const uint8_t *l4 = is_fragment || header_len < 20 || end - l3 < (ptrdiff_t)header_len ? NULL : l3 + header_len;

		return hash_flow(l3 + 12, l3 + 16, 4, l3[9], l4, end);
	}
	if (type == ETHERTYPE_IPV6 && end - l3 >= 40)
		return hash_flow(l3 + 8, l3 + 24, 16, l3[6], l3 + 40, end);
	return hash_flow(frame + 6, frame, 6, 0, NULL, end);
}
