/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The directives, and which containers they name. */
#include "reserv_module.h"

#include "../words.h"

int name_is_right(const u_char *name, size_t length)
{
	return path_is_right((const char *)name, length);
}

struct share *share_named(struct settings *all, ngx_str_t *name)
{
	return (struct share *)ngx_str_rbtree_lookup(&all->shares, name, ngx_crc32_short(name->data, name->len));
}

struct share *share_make(struct settings *all, const char *name, size_t length)
{
	size_t top = strlen(all->top), bytes = sizeof(struct share) + sizeof(struct known) + top + 2 * length + 2;
	struct share *share = calloc(1, bytes);
	char *text;

	if (!share)
		return NULL;
	share->known = (struct known *)(share + 1);
	text = (char *)(share->known + 1);
	memcpy(text, name, length);
	share->node.str.data = (u_char *)text;
	share->node.str.len = length;
	share->node.node.key = ngx_crc32_short((u_char *)text, length);
	text += length + 1;
	memcpy(text, all->top, top);
	memcpy(text + top, name, length);
	share->path = text;
	share->dir = -1;
	ngx_queue_init(&share->ready);
	return share;
}

void share_add(struct settings *all, struct share *share)
{
	ngx_rbtree_insert(&all->shares, &share->node.node);
	share->next = all->first;
	/* The helper's thread reads this list. */
	__atomic_store_n(&all->first, share, __ATOMIC_RELEASE);
	all->count++;
}

/* Takes the mount point and "container" off a name that begins with them. */
static void without_top(struct settings *all, ngx_str_t *name)
{
	size_t top = strlen(all->top);

	if (name->len > top && !memcmp(name->data, all->top, top)) {
		name->data += top;
		name->len -= top;
	}
}

static char *wrong_name(ngx_conf_t *cf, ngx_str_t *directive, ngx_str_t *name)
{
	struct settings *all = ngx_http_conf_get_module_main_conf(cf, ngx_http_reserv_module);

	ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
			   "invalid value \"%V\" in \"%V\" directive, it is no path of a container; one is like "
			   "web/site1 or %sweb/site1",
			   name, directive, all->top);
	return NGX_CONF_ERROR;
}

static char *set_share(ngx_conf_t *cf, ngx_command_t *cmd, void *place_)
{
	struct settings *all = ngx_http_conf_get_module_main_conf(cf, ngx_http_reserv_module);
	ngx_str_t *words = cf->args->elts, name = words[1];
	ngx_http_compile_complex_value_t compile = { 0 };
	struct place *place = place_;

	(void)cmd;
	if (place->own)
		return "is duplicate";
	place->own = 1;
	if (ngx_http_script_variables_count(&name)) {
		if (!all->roots) {
			ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
					   "\"reserv_share %V\" needs a \"reserv_root\" before it, which says where "
					   "the containers are that a variable may name",
					   &name);
			return NGX_CONF_ERROR;
		}
		place->value = ngx_pcalloc(cf->pool, sizeof(*place->value));
		compile.cf = cf;
		compile.value = &words[1];
		compile.complex_value = place->value;
		return place->value && ngx_http_compile_complex_value(&compile) == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
	}
	without_top(all, &name);
	if (!name_is_right(name.data, name.len))
		return wrong_name(cf, &words[0], &words[1]);
	place->share = share_named(all, &name);
	if (place->share)
		return NGX_CONF_OK;
	place->share = share_make(all, (const char *)name.data, name.len);
	if (!place->share)
		return NGX_CONF_ERROR;
	share_add(all, place->share);
	return NGX_CONF_OK;
}

static char *set_root(ngx_conf_t *cf, ngx_command_t *cmd, void *all_)
{
	struct settings *all = all_;
	ngx_str_t *words = cf->args->elts, name = words[1];
	struct root *root;

	(void)cmd;
	without_top(all, &name);
	if (!name_is_right(name.data, name.len))
		return wrong_name(cf, &words[0], &words[1]);
	root = calloc(1, sizeof(*root) + name.len + 1);
	if (!root)
		return NGX_CONF_ERROR;
	root->length = name.len;
	memcpy(root->name, name.data, name.len);
	root->next = all->roots;
	all->roots = root;
	return NGX_CONF_OK;
}

static char *set_status(ngx_conf_t *cf, ngx_command_t *cmd, void *place_)
{
	ngx_str_t *words = cf->args->elts;
	struct place *place = place_;

	(void)cmd;
	if (place->status != NGX_CONF_UNSET)
		return "is duplicate";
	if (words[1].len == 3 && !memcmp(words[1].data, "off", 3)) {
		place->status = 0;
		return NGX_CONF_OK;
	}
	place->status = ngx_atoi(words[1].data, words[1].len);
	if (place->status < 400 || place->status > 599) {
		ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
				   "invalid value \"%V\" in \"%V\" directive, it must be a code from 400 to 599 or \"off\"",
				   &words[1], &words[0]);
		return NGX_CONF_ERROR;
	}
	return NGX_CONF_OK;
}

#define ANYWHERE (NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF)

ngx_command_t reserv_commands[] = {
	{ ngx_string("reserv"), ANYWHERE | NGX_CONF_FLAG, ngx_conf_set_flag_slot, NGX_HTTP_LOC_CONF_OFFSET,
	  offsetof(struct place, enabled), NULL },
	{ ngx_string("reserv_share"), ANYWHERE | NGX_CONF_TAKE1, set_share, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },
	{ ngx_string("reserv_status"), ANYWHERE | NGX_CONF_TAKE1, set_status, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },
	{ ngx_string("reserv_root"), NGX_HTTP_MAIN_CONF | NGX_CONF_TAKE1, set_root, NGX_HTTP_MAIN_CONF_OFFSET, 0, NULL },
	ngx_null_command,
};

static void forget(void *all_)
{
	struct settings *all = all_;
	struct share *share, *next;
	struct root *root, *after;

	if (helper_works())
		return;
	for (share = all->first; share; share = next) {
		next = share->next;
		free(share);
	}
	for (root = all->roots; root; root = after) {
		after = root->next;
		free(root);
	}
	free(all->mount);
	free(all->top);
	free(all);
}

void *settings_create(ngx_conf_t *cf)
{
	ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(cf->pool, 0);
	struct settings *all = cleanup ? calloc(1, sizeof(*all)) : NULL;
	const char *mount = getenv("RESERV_MOUNT");

	if (!all)
		return NULL;
	cleanup->handler = forget;
	cleanup->data = all;
	if (!mount || *mount != '/')
		mount = "/reserv";
	all->mount = strdup(mount);
	if (asprintf(&all->top, "%s/container/", mount) < 0)
		all->top = NULL;
	ngx_rbtree_init(&all->shares, &all->none, ngx_str_rbtree_insert_value);
	return all->mount && all->top ? all : NULL;
}

void *place_create(ngx_conf_t *cf)
{
	struct place *place = ngx_pcalloc(cf->pool, sizeof(*place));

	if (place) {
		place->enabled = NGX_CONF_UNSET;
		place->status = NGX_CONF_UNSET;
	}
	return place;
}

char *place_merge(ngx_conf_t *cf, void *outer_, void *inner_)
{
	struct place *outer = outer_, *inner = inner_;

	(void)cf;
	ngx_conf_merge_value(inner->enabled, outer->enabled, 0);
	ngx_conf_merge_value(inner->status, outer->status, 0);
	if (!inner->own) {
		inner->share = outer->share;
		inner->value = outer->value;
	}
	return NGX_CONF_OK;
}
