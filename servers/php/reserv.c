/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * PHP's extension: a worker of PHP-FPM is in the container of the request that it serves.
 *
 * The container's name is the FastCGI parameter RESERV_CONTAINER, which the web server sends. A
 * client's header can be no such parameter, for its name would begin with HTTP_. The name is read
 * before anything of the script runs; there is no function for scripts, and the settings cannot be
 * changed while a request is served.
 */
#include "php_reserv.h"

#include <stdarg.h>

#include "SAPI.h"
#include "ext/standard/info.h"
#include "php_ini.h"

#define PARAMETER "RESERV_CONTAINER"
#define VERSION "1"

/* What FPM has in these places. */
static size_t (*fpm_read_post)(char *buffer, size_t count);
static char *(*fpm_read_cookies)(void);
static int (*fpm_deactivate)(void);
static int hooked;

/* Of the request that is served. */
static int begun, refused;

void say(const char *format, ...)
{
	char line[1024] = "reserv: ";
	size_t begins = strlen(line);
	va_list words;

	va_start(words, format);
	vsnprintf(line + begins, sizeof(line) - begins, format, words);
	va_end(words);
	php_log_err_with_severity(line, LOG_WARNING);
}

/*
 * Of a request. What FPM gets as PHP_VALUE and PHP_ADMIN_VALUE changes settings whatever they say
 * of themselves, and for all later requests of the worker.
 */
static int in_request(void)
{
	return SG(server_context) != NULL;
}

static ZEND_INI_MH(set_containers)
{
	(void)entry, (void)mh_arg1, (void)mh_arg2, (void)mh_arg3;
	if (stage == ZEND_INI_STAGE_STARTUP)
		return SUCCESS;
	if (!in_request() && first_time(WRONG_CONTAINERS))
		say("reserv.containers counts in php.ini, where FPM's parent reads it; not \"%s\" of a pool",
		    new_value ? ZSTR_VAL(new_value) : "");
	return FAILURE;
}

static ZEND_INI_MH(set_container)
{
	size_t length = new_value ? ZSTR_LEN(new_value) : 0;

	(void)entry, (void)mh_arg1, (void)mh_arg2, (void)mh_arg3, (void)stage;
	if (in_request())
		return FAILURE;
	if (!length || name_of(ZSTR_VAL(new_value), &length))
		return SUCCESS;
	if (first_time(WRONG_CONTAINER))
		say("invalid value \"%s\" of reserv.container, it is no path of a container; one is like web/site1 or "
	    "%sweb/site1",
	    ZSTR_VAL(new_value), top_of_names());
	return FAILURE;
}

static int code_of(const char *text)
{
	return strlen(text) == 3 && strspn(text, "0123456789") == 3 && atoi(text) >= 400 && atoi(text) < 600 ? atoi(text) : 0;
}

static ZEND_INI_MH(set_error_code)
{
	const char *text = new_value ? ZSTR_VAL(new_value) : "";

	(void)entry, (void)mh_arg1, (void)mh_arg2, (void)mh_arg3, (void)stage;
	if (in_request())
		return FAILURE;
	/* PHP makes "" of Off, and "0" of what is not set. */
	if (!*text || !strcmp(text, "0") || code_of(text))
		return SUCCESS;
	if (first_time(WRONG_CODE))
		say("invalid value \"%s\" of reserv.error_code, it must be a code from 400 to 599 or Off", text);
	return FAILURE;
}

PHP_INI_BEGIN()
	PHP_INI_ENTRY("reserv.containers", "", PHP_INI_SYSTEM, set_containers)
	PHP_INI_ENTRY("reserv.container", "", PHP_INI_SYSTEM, set_container)
	PHP_INI_ENTRY("reserv.error_code", "", PHP_INI_SYSTEM, set_error_code)
PHP_INI_END()

/* Once for each request, and before PHP reads its body. */
static void begin(void)
{
	const char *text, *name;
	size_t length;

	if (begun || !in_request())
		return;
	begun = 1;
	text = sapi_module.getenv(PARAMETER, strlen(PARAMETER));
	if (!text || !*text)
		text = INI_STR("reserv.container");
	if (!text || !*text)
		return;
	length = strlen(text);
	name = name_of(text, &length);
	refused = name ? bind_to(name, length) : bind_to("", 0);
}

static void end(void)
{
	begun = refused = 0;
	unbind();
}

/* The first that PHP calls of a request with a body that it reads before the script runs. */
static size_t read_post(char *buffer, size_t count)
{
	begin();
	return fpm_read_post(buffer, count);
}

/* The first that it calls of another. */
static char *read_cookies(void)
{
	begin();
	return fpm_read_cookies();
}

/*
 * The last that PHP calls of a request: FPM sends what is left of the answer, 8 KB at most, and
 * closes. From then on the client may send the next request, and who has another container must not
 * wait for a worker that waits for its own container's turn to end.
 */
static int deactivate(void)
{
	end();
	return fpm_deactivate ? fpm_deactivate() : SUCCESS;
}

/* A request is refused before the script. */
PHP_RINIT_FUNCTION(reserv)
{
	int code;

	(void)type, (void)module_number;
	code = refused ? code_of(INI_STR("reserv.error_code")) : 0;
	if (code) {
		SG(sapi_headers).http_response_code = code;
		PUTS("The container of this site cannot be had.\n");
		/* FPM runs no script for a request without a method: it takes it for none of HTTP. */
		SG(request_info).request_method = NULL;
	}
	return SUCCESS;
}

PHP_MINIT_FUNCTION(reserv)
{
	if (type != MODULE_PERSISTENT)
		return FAILURE;
	REGISTER_INI_ENTRIES();
	if (strcmp(sapi_module.name, "fpm-fcgi") || !sapi_module.getenv || !sapi_module.read_post || !sapi_module.read_cookies)
		return SUCCESS;
	if (shares_open(INI_STR("reserv.containers"))) {
		say("no memory for the list of containers: all requests run where FPM does");
		return SUCCESS;
	}
	fpm_read_post = sapi_module.read_post;
	fpm_read_cookies = sapi_module.read_cookies;
	fpm_deactivate = sapi_module.deactivate;
	sapi_module.read_post = read_post;
	sapi_module.read_cookies = read_cookies;
	sapi_module.deactivate = deactivate;
	hooked = 1;
	return SUCCESS;
}

PHP_MSHUTDOWN_FUNCTION(reserv)
{
	(void)type;
	UNREGISTER_INI_ENTRIES();
	/* The module may be unloaded before the last call of these. */
	if (hooked) {
		sapi_module.read_post = fpm_read_post;
		sapi_module.read_cookies = fpm_read_cookies;
		sapi_module.deactivate = fpm_deactivate;
		shares_close();
	}
	hooked = 0;
	return SUCCESS;
}

PHP_MINFO_FUNCTION(reserv)
{
	php_info_print_table_start();
	php_info_print_table_row(2, "Requests run in containers of Reserv", hooked ? "yes" : "no: this is not PHP-FPM");
	php_info_print_table_end();
	DISPLAY_INI_ENTRIES();
	(void)zend_module;
}

zend_module_entry reserv_module_entry = {
	STANDARD_MODULE_HEADER, "reserv", NULL, PHP_MINIT(reserv), PHP_MSHUTDOWN(reserv), PHP_RINIT(reserv), NULL,
	PHP_MINFO(reserv), VERSION, STANDARD_MODULE_PROPERTIES,
};

ZEND_GET_MODULE(reserv)
