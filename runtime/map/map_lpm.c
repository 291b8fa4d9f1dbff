/* SPDX-License-Identifier: MIT */
/*
 * LPM_TRIE: the value of the longest stored prefix of a key. A key is a u32 prefix length and data, most significant bit first.
 *
 * A binary trie with its one-way paths compressed: a node stands for a prefix, its children for longer ones that continue with bit 0 or
 * 1. A node without value is a fork and has both children. Readers walk down without a lock; a change, under map->lock, makes one
 * pointer of the live trie point elsewhere, and what is cut off stays readable until the grace period has passed. Only `child` is
 * read by readers; `parent` belongs to the lock.
 */
#include <errno.h>
#include <stdlib.h>

#include "runtime/log.h"
#include "runtime/map/map.h"

#define DATA_AT 4u
#define DATA_MAX 256u

struct lpm_node {
	struct shunt_grace_item grace;
	struct lpm_trie *trie;
	struct lpm_node *child[2]; /* atomic */
	struct lpm_node *parent;
	uint32_t prefix_len;
	bool has_value;
	unsigned char data[]; /* data_size bytes, padded to 8, then the value */
};

struct lpm_trie {
	struct shunt_map map;
	uint32_t data_size;
	uint32_t prefix_max;
	uint32_t value_at; /* in data[] */
	struct lpm_node *root; /* atomic */
	uint32_t count;        /* atomic; entries, forks not counted */
};

static int lpm_check(const struct shunt_map_attr *attr, const char *name)
{
	if (!(attr->flags & SHUNT_MAP_NO_PREALLOC))
		return shunt_fail(EINVAL, "map '%s': tries need the flag NO_PREALLOC", name);
	if (attr->key_size <= DATA_AT || attr->key_size > DATA_AT + DATA_MAX)
		return shunt_fail(EINVAL, "map '%s': key_size %u; trie keys are a prefix length of 4 bytes and 1 to %u bytes", name,
				  attr->key_size, DATA_MAX);
	return 0;
}

static int lpm_init(struct shunt_map *map, const struct shunt_map_attr *attr)
{
	struct lpm_trie *trie = (struct lpm_trie *)map;

	trie->data_size = map->abi.key_size - DATA_AT;
	trie->prefix_max = trie->data_size * 8;
	/* data[] follows a bool: it is the value, not data[], that must be aligned in the node. */
	trie->value_at = map_round8((uint32_t)offsetof(struct lpm_node, data) + trie->data_size) - (uint32_t)offsetof(struct lpm_node, data);
	return 0;
}

static void lpm_fini(struct shunt_map *map)
{
	struct lpm_node *node = ((struct lpm_trie *)map)->root;

	/* Children first, up again by parent, so that a deep trie costs no stack. */
	while (node) {
		struct lpm_node *below = node->child[0] ? node->child[0] : node->child[1], *parent = node->parent;

		if (below) {
			node = below;
			continue;
		}
		if (parent)
			parent->child[parent->child[1] == node] = NULL;
		free(node);
		node = parent;
	}
}

static unsigned int bit_at(const unsigned char *data, uint32_t bit)
{
	return (data[bit / 8] >> (7 - bit % 8)) & 1;
}

/* Number of leading bits in which a and b agree, at most limit. */
static uint32_t common_bits(const unsigned char *a, const unsigned char *b, uint32_t limit)
{
	for (uint32_t at = 0; at * 8 < limit; at++) {
		unsigned int diff = a[at] ^ b[at];

		if (diff) {
			uint32_t bits = at * 8 + (uint32_t)__builtin_clz(diff) - 24;

			return bits < limit ? bits : limit;
		}
	}
	return limit;
}

static uint32_t min_len(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static void *node_value(const struct lpm_trie *trie, struct lpm_node *node)
{
	return node->data + trie->value_at;
}

static void *lpm_lookup(struct shunt_map *map, const void *key)
{
	struct lpm_trie *trie = (struct lpm_trie *)map;
	const unsigned char *data = (const unsigned char *)key + DATA_AT;
	uint32_t len = map_load_index(key);
	struct lpm_node *node, *best = NULL;

	if (len > trie->prefix_max)
		return NULL;
	node = __atomic_load_n(&trie->root, __ATOMIC_ACQUIRE);
	while (node && node->prefix_len <= len && common_bits(node->data, data, node->prefix_len) == node->prefix_len) {
		if (node->has_value)
			best = node;
		if (node->prefix_len == len)
			break;
		node = __atomic_load_n(&node->child[bit_at(data, node->prefix_len)], __ATOMIC_ACQUIRE);
	}
	return best ? node_value(trie, best) : NULL;
}

static struct lpm_node *new_node(struct lpm_trie *trie, uint32_t prefix_len, const unsigned char *data, const void *value)
{
	struct lpm_node *node = calloc(1, sizeof(*node) + trie->value_at + (value ? trie->map.abi.value_size : 0));

	if (!node)
		return NULL;
	node->trie = trie;
	node->prefix_len = prefix_len;
	memcpy(node->data, data, trie->data_size);
	if (value) {
		node->has_value = true;
		memcpy(node_value(trie, node), value, trie->map.abi.value_size);
	}
	return node;
}

static void release(struct shunt_grace_item *item)
{
	struct lpm_node *node = (struct lpm_node *)item;
	struct shunt_map *map = &node->trie->map;

	free(node);
	shunt_map_piece_done(map);
}

static void retire(struct lpm_node *node)
{
	if (node)
		shunt_map_retire(&node->trie->map, &node->grace, release);
}

/* The pointer of the live trie that points to node. */
static struct lpm_node **link_of(struct lpm_trie *trie, struct lpm_node *node)
{
	struct lpm_node *parent = node->parent;

	return parent ? &parent->child[parent->child[1] == node] : &trie->root;
}

static void set_link(struct lpm_node **link, struct lpm_node *parent, struct lpm_node *node)
{
	if (node)
		node->parent = parent;
	__atomic_store_n(link, node, __ATOMIC_RELEASE);
}

/* Takes over node's children; node may still be read. */
static void adopt_children(struct lpm_node *heir, struct lpm_node *node)
{
	for (int i = 0; i < 2; i++) {
		heir->child[i] = node->child[i];
		if (heir->child[i])
			heir->child[i]->parent = heir;
	}
}

/* Walks to where a prefix is or belongs: *link points to the first node that is not a proper prefix of it (or NULL). */
static struct lpm_node *descend(struct lpm_trie *trie, const unsigned char *data, uint32_t len, struct lpm_node ***link,
				struct lpm_node **parent, uint32_t *common)
{
	struct lpm_node *node = trie->root;

	*link = &trie->root;
	*parent = NULL;
	*common = 0;
	while (node) {
		*common = common_bits(node->data, data, min_len(node->prefix_len, len));
		if (*common < node->prefix_len || node->prefix_len == len)
			break;
		*parent = node;
		*link = &node->child[bit_at(data, node->prefix_len)];
		node = **link;
	}
	return node;
}

static int lpm_update(struct shunt_map *map, const void *key, const void *value, uint64_t flags)
{
	struct lpm_trie *trie = (struct lpm_trie *)map;
	const unsigned char *data = (const unsigned char *)key + DATA_AT;
	uint32_t len = map_load_index(key), common;
	struct lpm_node *node, *parent, **link, *old = NULL, *fresh, *fork;
	bool exact, exists;
	int err = 0;

	if (len > trie->prefix_max)
		return -EINVAL;
	fresh = new_node(trie, len, data, value);
	fork = new_node(trie, 0, data, NULL);
	if (!fresh || !fork) {
		free(fresh);
		free(fork);
		return -ENOMEM;
	}
	pthread_mutex_lock(&map->lock);
	node = descend(trie, data, len, &link, &parent, &common);
	exact = node && node->prefix_len == len && common == len;
	exists = exact && node->has_value;
	if (exists && flags == SHUNT_NOEXIST)
		err = -EEXIST;
	else if (!exists && flags == SHUNT_EXIST)
		err = -ENOENT;
	else if (!exists && trie->count >= map->abi.max_entries)
		err = -ENOSPC; /* the kernel's word for a full trie */
	if (err)
		goto out_unlock;
	if (exact) {
		/* A fork that becomes an entry, or an entry with a new value: another node in its place. */
		adopt_children(fresh, node);
		old = node;
	} else if (node && common == len) {
		/* Between parent and node: node continues the new prefix. */
		fresh->child[bit_at(node->data, len)] = node;
		node->parent = fresh;
	} else if (node) {
		/* They part after `common` bits, below a fork. */
		fork->prefix_len = common;
		fork->child[bit_at(data, common)] = fresh;
		fork->child[bit_at(node->data, common)] = node;
		fresh->parent = fork;
		node->parent = fork;
		set_link(link, parent, fork);
		fork = NULL;
		link = NULL;
	}
	if (link)
		set_link(link, parent, fresh);
	if (!exists)
		__atomic_add_fetch(&trie->count, 1, __ATOMIC_RELAXED);
	fresh = NULL;
out_unlock:
	pthread_mutex_unlock(&map->lock);
	free(fresh);
	free(fork);
	retire(old);
	return err;
}

static int lpm_delete(struct shunt_map *map, const void *key)
{
	struct lpm_trie *trie = (struct lpm_trie *)map;
	const unsigned char *data = (const unsigned char *)key + DATA_AT;
	uint32_t len = map_load_index(key), common;
	struct lpm_node *node, *parent, **link, *gone[2] = {NULL, NULL}, *fork = NULL;

	if (len > trie->prefix_max)
		return -EINVAL;
	/* Needed only where both children stay; taken before the lock. */
	fork = new_node(trie, len, data, NULL);
	if (!fork)
		return -ENOMEM;
	pthread_mutex_lock(&map->lock);
	node = descend(trie, data, len, &link, &parent, &common);
	if (!node || node->prefix_len != len || common != len || !node->has_value) {
		pthread_mutex_unlock(&map->lock);
		free(fork);
		return -ENOENT;
	}
	gone[0] = node;
	if (node->child[0] && node->child[1]) {
		/* Readers test has_value of a node that they hold: it is not changed, a fork takes the place. */
		adopt_children(fork, node);
		set_link(link, parent, fork);
		fork = NULL;
	} else if (node->child[0] || node->child[1]) {
		set_link(link, parent, node->child[node->child[1] != NULL]);
	} else if (parent && !parent->has_value) {
		/* A leaf below a fork: its sibling takes the fork's place. */
		struct lpm_node *sibling = parent->child[parent->child[0] == node];

		gone[1] = parent;
		set_link(link_of(trie, parent), parent->parent, sibling);
	} else {
		set_link(link, parent, NULL);
	}
	__atomic_sub_fetch(&trie->count, 1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&map->lock);
	free(fork);
	retire(gone[0]);
	retire(gone[1]);
	return 0;
}

static int lpm_host_lookup(struct shunt_map *map, const void *key, void *value)
{
	void *found = lpm_lookup(map, key);

	if (!found)
		return -ENOENT;
	map_value_read(value, found, map->abi.value_size);
	return 0;
}

static struct lpm_node *first_below(struct lpm_node *node)
{
	while (node->child[0] || node->child[1])
		node = node->child[0] ? node->child[0] : node->child[1];
	return node;
}

static struct lpm_node *after(struct lpm_node *node)
{
	struct lpm_node *parent = node->parent;

	return parent && parent->child[0] == node && parent->child[1] ? first_below(parent->child[1]) : parent;
}

/* Longer prefixes before the shorter ones that cover them, as the kernel lists them. */
static int lpm_next_key(struct shunt_map *map, const void *key, void *next)
{
	struct lpm_trie *trie = (struct lpm_trie *)map;
	struct lpm_node *node = NULL, *parent, **link;
	uint32_t len = key ? map_load_index(key) : UINT32_MAX, common;
	int err = 0;

	pthread_mutex_lock(&map->lock);
	if (len <= trie->prefix_max) {
		node = descend(trie, (const unsigned char *)key + DATA_AT, len, &link, &parent, &common);
		if (node && (node->prefix_len != len || common != len || !node->has_value))
			node = NULL;
	}
	if (node)
		node = after(node);
	else if (trie->root)
		node = first_below(trie->root);
	while (node && !node->has_value)
		node = after(node);
	if (node) {
		memcpy(next, &node->prefix_len, sizeof(node->prefix_len));
		memcpy((char *)next + DATA_AT, node->data, trie->data_size);
	} else {
		err = -ENOENT;
	}
	pthread_mutex_unlock(&map->lock);
	return err;
}

static uint32_t lpm_count(const struct shunt_map *map)
{
	return __atomic_load_n(&((const struct lpm_trie *)map)->count, __ATOMIC_RELAXED);
}

const struct shunt_map_ops shunt_map_lpm_ops = {
	.size = sizeof(struct lpm_trie),
	.check = lpm_check,
	.init = lpm_init,
	.fini = lpm_fini,
	.lookup = lpm_lookup,
	.update = lpm_update,
	.delete = lpm_delete,
	.host_lookup = lpm_host_lookup,
	.next_key = lpm_next_key,
	.count = lpm_count,
};
