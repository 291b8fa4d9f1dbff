/* SPDX-License-Identifier: MIT */
/* A packet capture in memory: Ethernet frames read through libpcap, each with the hash that spreads flows over receive queues. */
#ifndef LIB_REPLAY_CAPTURE_H
#define LIB_REPLAY_CAPTURE_H

#include <stddef.h>
#include <stdint.h>

struct shunt_replay_frame {
	const uint8_t *bytes;
	uint32_t len;       /* captured bytes */
	uint32_t flow_hash; /* equal for both directions of a flow */
};

struct shunt_replay_capture {
	struct shunt_replay_frame *frames;
	size_t nr_frames;
	uint64_t nr_bytes;
	uint64_t nr_skipped; /* frames shorter than an Ethernet header or longer than a receive buffer */
};

/* Longest frame that fits a receive buffer as the kernel's BPF_PROG_TEST_RUN lays it out for one page: 4096 bytes less the
 * headroom (256) and struct skb_shared_info (320). */
#define SHUNT_REPLAY_FRAME_MAX 3520u
#define SHUNT_REPLAY_FRAME_MIN 14u

/* Reads a capture file of Ethernet frames. -EINVAL: not a capture, another link type, or no frame in it; -ENOENT...; -ENOMEM. */
int shunt_replay_capture_open(const char *path, struct shunt_replay_capture **out);
void shunt_replay_capture_close(struct shunt_replay_capture *capture);

/* Hash of the frame's flow: addresses, protocol and ports, the same for both directions; of the MAC addresses when it is not IP. */
uint32_t shunt_replay_flow_hash(const uint8_t *frame, uint32_t len);

#endif
