/* SPDX-License-Identifier: MIT */
/* Reads a whole capture file into memory: replays go over the frames a thousand times, so the file is touched once. */
#include "lib/replay/capture.h"

#include <errno.h>
#include <pcap/pcap.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "runtime/log.h"

/* A capture is held in memory; beyond this, split it. */
#define MAX_CAPTURE_BYTES ((uint64_t)4 << 30)

struct growing_capture {
	struct shunt_replay_capture capture;
	size_t capacity;
	uint8_t *bytes; /* all frames; frames[] hold offsets until the end, since this moves as it grows */
	size_t bytes_capacity;
};

static int append(struct growing_capture *g, const uint8_t *bytes, uint32_t len)
{
	struct shunt_replay_capture *capture = &g->capture;

	if (capture->nr_frames == g->capacity) {
		size_t capacity = g->capacity ? g->capacity * 2 : 1024;
		void *frames = realloc(capture->frames, capacity * sizeof(*capture->frames));

		if (!frames)
			return -ENOMEM;
		capture->frames = frames;
		g->capacity = capacity;
	}
	if (capture->nr_bytes + len > g->bytes_capacity) {
		size_t capacity = g->bytes_capacity ? g->bytes_capacity * 2 : (size_t)1 << 20;
		void *grown = capacity > MAX_CAPTURE_BYTES ? NULL : realloc(g->bytes, capacity);

		if (!grown)
			return -ENOMEM;
		g->bytes = grown;
		g->bytes_capacity = capacity;
	}
	memcpy(g->bytes + capture->nr_bytes, bytes, len);
	capture->frames[capture->nr_frames++] = (struct shunt_replay_frame){
		.bytes = (const uint8_t *)(uintptr_t)capture->nr_bytes,
		.len = len,
		.flow_hash = shunt_replay_flow_hash(bytes, len),
	};
	capture->nr_bytes += len;
	return 0;
}

static int read_frames(pcap_t *pcap, const char *path, struct growing_capture *g)
{
	struct pcap_pkthdr *header;
	const u_char *bytes;
	int got;

	while ((got = pcap_next_ex(pcap, &header, &bytes)) == 1) {
		if (header->caplen < SHUNT_REPLAY_FRAME_MIN || header->caplen > SHUNT_REPLAY_FRAME_MAX) {
			g->capture.nr_skipped++;
			continue;
		}
		if (append(g, bytes, header->caplen))
			return shunt_fail(ENOMEM, "%s: no memory for frame %zu; captures may hold %llu bytes at most", path,
					  g->capture.nr_frames, (unsigned long long)MAX_CAPTURE_BYTES);
	}
	if (got == PCAP_ERROR)
		return shunt_fail(EINVAL, "%s: after frame %zu: %s", path, g->capture.nr_frames, pcap_geterr(pcap));
	if (!g->capture.nr_frames)
		return shunt_fail(EINVAL, "%s: no frame of %u to %u bytes in this capture (%llu others)", path, SHUNT_REPLAY_FRAME_MIN,
				  SHUNT_REPLAY_FRAME_MAX, (unsigned long long)g->capture.nr_skipped);
	return 0;
}

/* The capture owns one allocation of frame bytes: frames[0].bytes is its start. */
static int finish(struct growing_capture *g, struct shunt_replay_capture **out)
{
	struct shunt_replay_capture *capture = malloc(sizeof(*capture));

	if (!capture)
		return shunt_fail(ENOMEM, "no memory for a capture");
	*capture = g->capture;
	for (size_t i = 0; i < capture->nr_frames; i++)
		capture->frames[i].bytes = g->bytes + (uintptr_t)capture->frames[i].bytes;
	*out = capture;
	return 0;
}

int shunt_replay_capture_open(const char *path, struct shunt_replay_capture **out)
{
	char message[PCAP_ERRBUF_SIZE];
	struct growing_capture g = { 0 };
	struct stat status;
	pcap_t *pcap;
	int err;

	if (stat(path, &status))
		return shunt_fail(errno, "%s: %s", path, strerror(errno));
	pcap = pcap_open_offline(path, message);
	if (!pcap)
		return shunt_fail(EINVAL, "%s: not a capture that libpcap reads: %s", path, message);
	if (pcap_datalink(pcap) != DLT_EN10MB)
		err = shunt_fail(EINVAL, "%s: link type %s; XDP programs need Ethernet frames", path,
				 pcap_datalink_val_to_name(pcap_datalink(pcap)) ?: "unknown");
	else
		err = read_frames(pcap, path, &g);
	pcap_close(pcap);
	if (!err)
		err = finish(&g, out);
	if (err) {
		free(g.capture.frames);
		free(g.bytes);
	}
	return err;
}

void shunt_replay_capture_close(struct shunt_replay_capture *capture)
{
	if (!capture)
		return;
	free((void *)capture->frames[0].bytes);
	free(capture->frames);
	free(capture);
}
