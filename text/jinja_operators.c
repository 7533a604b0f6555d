/* Operators of numbers and strings, as in Python: / gives a float, // and % round down, and a
 * boolean is a number. An integer beyond 64 bits is refused. */
#include <math.h>

#include "text/jinja_values.h"

typedef coh_jinja_value value;

static coh_status beyond(const coh_jinja_run *run)
{
    return coh_jinja_fail(run, "an integer is beyond 64 bits");
}

static coh_status by_zero(const coh_jinja_run *run)
{
    return coh_jinja_fail(run, "a division by zero");
}

/* ---- integers ---- */

/* The quotient rounded down; not for INT64_MIN / -1. */
static int64_t floor_divide(int64_t a, int64_t b)
{
    const int64_t quotient = a / b;
    return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

static coh_status power(const coh_jinja_run *run, int64_t base, int64_t exponent, value *out)
{
    int64_t result = 1;
    if (exponent < 0) {
        if (base == 0)
            return by_zero(run);
        *out = coh_jinja_real(pow((double)base, (double)exponent));
        return COH_OK;
    }
    if (base == 0 || base == 1 || base == -1) {
        *out = coh_jinja_whole(exponent == 0 ? 1 : base == -1 && exponent % 2 == 0 ? 1 : base);
        return COH_OK;
    }
    for (; exponent > 0; exponent--) /* at most 63 times */
        if (__builtin_mul_overflow(result, base, &result))
            return beyond(run);
    *out = coh_jinja_whole(result);
    return COH_OK;
}

static coh_status divide(const coh_jinja_run *run, uint16_t op, int64_t a, int64_t b, value *out)
{
    if (b == 0)
        return by_zero(run);
    if (op == '/')
        *out = coh_jinja_real((double)a / (double)b);
    else if (b == -1 && op != '%')
        return a == INT64_MIN ? beyond(run) : (*out = coh_jinja_whole(-a), COH_OK);
    else if (op == '%')
        *out = coh_jinja_whole(b == -1 ? 0 : a - floor_divide(a, b) * b);
    else
        *out = coh_jinja_whole(floor_divide(a, b));
    return COH_OK;
}

static coh_status integers(const coh_jinja_run *run, uint16_t op, int64_t a, int64_t b, value *out)
{
    int64_t result = 0;
    int is_beyond = 0;
    if (op == COH_JINJA_OP('*', '*'))
        return power(run, a, b, out);
    if (op == '+')
        is_beyond = __builtin_add_overflow(a, b, &result);
    else if (op == '-')
        is_beyond = __builtin_sub_overflow(a, b, &result);
    else if (op == '*')
        is_beyond = __builtin_mul_overflow(a, b, &result);
    else
        return divide(run, op, a, b, out);
    *out = coh_jinja_whole(result);
    return is_beyond ? beyond(run) : COH_OK;
}

/* ---- floats ---- */

/* The remainder with the divisor's sign. */
static double remainder_of(double a, double b)
{
    const double rest = fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest == 0 ? copysign(0.0, b) : rest;
}

static coh_status reals(const coh_jinja_run *run, uint16_t op, double a, double b, value *out)
{
    if (b == 0 && (op == '/' || op == '%' || op == COH_JINJA_OP('/', '/')))
        return by_zero(run);
    if (op == COH_JINJA_OP('*', '*')) {
        if ((a < 0 && b != floor(b)) || (a == 0 && b < 0))
            return coh_jinja_fail(run, "a power that is not a number");
        *out = coh_jinja_real(pow(a, b));
    } else {
        *out = coh_jinja_real(op == '+'   ? a + b
                              : op == '-' ? a - b
                              : op == '*' ? a * b
                              : op == '/' ? a / b
                              : op == '%' ? remainder_of(a, b)
                                          : floor((a - remainder_of(a, b)) / b + 0.5));
    }
    return COH_OK;
}

/* ---- strings and lists ---- */

/* A string that is marked as safe escapes the other one. */
static coh_status add_strings(coh_jinja_run *run, const value *a, const value *b, value *out)
{
    value left = *a, right = *b;
    if (a->flavour && !b->flavour)
        COH_TRY(coh_jinja_escape(run, b, &right));
    if (b->flavour && !a->flavour)
        COH_TRY(coh_jinja_escape(run, a, &left));
    const size_t begin = run->out->count;
    COH_TRY(coh_jinja_put(run, &left));
    COH_TRY(coh_jinja_put(run, &right));
    COH_TRY(coh_jinja_cut(run, begin, out));
    out->flavour = a->flavour || b->flavour;
    return COH_OK;
}

static coh_status add_lists(coh_jinja_run *run, const value *a, const value *b, value *out)
{
    const size_t count = a->list->count;
    COH_TRY(coh_jinja_list_make(run, (coh_jinja_flavour)a->flavour, count + b->list->count, out));
    if (count)
        memcpy(out->list->items, a->list->items, count * sizeof(value));
    if (b->list->count)
        memcpy(out->list->items + count, b->list->items, b->list->count * sizeof(value));
    return COH_OK;
}

static coh_status repeat(coh_jinja_run *run, const value *v, int64_t times, value *out)
{
    const size_t begin = run->out->count;
    if (times < 0)
        times = 0;
    if (v->kind == COH_JINJA_STRING) {
        COH_TRY(coh_jinja_spend(run, v->count ? (size_t)times : 0));
        for (; v->count && times > 0; times--)
            COH_TRY(coh_jinja_put(run, v));
        return coh_jinja_cut(run, begin, out);
    }
    const size_t count = v->list->count;
    if (count > 0 && (uint64_t)times > COH_JINJA_BYTES_MAX / count)
        return coh_jinja_fail(run, "a list of more than %d items", COH_JINJA_BYTES_MAX);
    COH_TRY(coh_jinja_list_make(run, (coh_jinja_flavour)v->flavour, count * (size_t)times, out));
    for (size_t i = 0; count && i < (size_t)times; i++)
        memcpy(out->list->items + i * count, v->list->items, count * sizeof(value));
    return COH_OK;
}

static int is_list(const value *v)
{
    return v->kind == COH_JINJA_LIST && v->flavour <= COH_JINJA_A_TUPLE;
}

static int can_repeat(const value *v)
{
    return v->kind == COH_JINJA_STRING || is_list(v);
}

coh_status coh_jinja_binary(coh_jinja_run *run, uint16_t op, const value *a, const value *b,
                            value *out)
{
    const char sign[] = { op >> 8 ? (char)(op >> 8) : (char)op, op >> 8 ? (char)op : '\0', '\0' };
    if (op == '+' && a->kind == COH_JINJA_STRING && b->kind == COH_JINJA_STRING)
        return add_strings(run, a, b, out);
    if (coh_jinja_is_integer(a) && coh_jinja_is_integer(b))
        return integers(run, op, a->whole, b->whole, out);
    if (coh_jinja_is_number(a) && coh_jinja_is_number(b))
        return reals(run, op, coh_jinja_number(a), coh_jinja_number(b), out);
    if (op == '+' && is_list(a) && is_list(b) && a->flavour == b->flavour)
        return add_lists(run, a, b, out);
    if (op == '*' && can_repeat(a) && coh_jinja_is_integer(b))
        return repeat(run, a, b->whole, out);
    if (op == '*' && can_repeat(b) && coh_jinja_is_integer(a))
        return repeat(run, b, a->whole, out);
    if (a->kind == COH_JINJA_UNDEFINED || b->kind == COH_JINJA_UNDEFINED) {
        const value *v = a->kind == COH_JINJA_UNDEFINED ? a : b;
        return coh_jinja_fail(run, "\"%.*s\" is undefined, so %s cannot be applied to it",
                              (int)(v->count < 80 ? v->count : 80), (const char *)v->bytes, sign);
    }
    if (op == '%' && a->kind == COH_JINJA_STRING)
        return coh_jinja_fail(run, "formatting a string with %% is not known here");
    return coh_jinja_fail(run, "%s cannot be applied to values of the types %s and %s", sign,
                          coh_jinja_type(a), coh_jinja_type(b));
}

coh_status coh_jinja_sign(coh_jinja_run *run, uint16_t op, const value *v, value *out)
{
    if (!coh_jinja_is_number(v))
        return coh_jinja_fail(run, "a value of the type %s has no sign", coh_jinja_type(v));
    if (v->kind == COH_JINJA_REAL) {
        *out = coh_jinja_real(op == '-' ? -v->real : v->real);
        return COH_OK;
    }
    if (op == '-' && v->whole == INT64_MIN)
        return beyond(run);
    *out = coh_jinja_whole(op == '-' ? -v->whole : v->whole);
    return COH_OK;
}

coh_status coh_jinja_compare(coh_jinja_run *run, uint16_t op, const value *a, const value *b,
                             int *out_is)
{
    int order = 0;
    if (op == COH_JINJA_OP('=', '=') || op == COH_JINJA_OP('!', '=')) {
        COH_TRY(coh_jinja_equal(run, a, b, out_is));
        *out_is ^= op != COH_JINJA_OP('=', '=');
        return COH_OK;
    }
    COH_TRY(coh_jinja_order(run, a, b, &order));
    *out_is = op == '<'                      ? order == -1
              : op == '>'                    ? order == 1
              : op == COH_JINJA_OP('<', '=') ? order == -1 || order == 0
                                             : order == 1 || order == 0;
    return COH_OK;
}
