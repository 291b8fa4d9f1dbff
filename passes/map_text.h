/* SPDX-License-Identifier: MIT */
/* Maps as text, for the tools and the plugin: NAME:type=T,key=BYTES,value=BYTES,entries=N[,stride=..][,mask=..][,values=..][,address=..][,handle=..][,inner=NAME] */
#ifndef PASSES_MAP_TEXT_H
#define PASSES_MAP_TEXT_H

#include <shunt/passes.h>

#ifdef __cplusplus
extern "C" {
#endif

struct shunt_map_list {
	struct shunt_pass_map *maps; /* NULL when empty */
	size_t nr;
};

/* Adds the map that text describes (text is cut into pieces). 0; -EINVAL, -ENOMEM: why holds a sentence. */
int shunt_map_list_add(struct shunt_map_list *list, char *text, char *why, size_t room);
/* Adds those of a file, one a line; # begins a comment. Otherwise also the errors of the file. */
int shunt_map_list_add_file(struct shunt_map_list *list, const char *path, char *why, size_t room);
void shunt_map_list_fini(struct shunt_map_list *list);

#ifdef __cplusplus
}
#endif
#endif
