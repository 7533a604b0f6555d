/* The named forms of conversations as chat templates: without a default system prompt, and else as
 * published templates write them. Next: chat_template.c runs them; chat.c chooses one. */
#include "text/chat_forms.h"

#include <stddef.h>

#define TURNS                                                                                      \
    "{% if m.role != ('assistant' if loop.index0 % 2 else 'user') %}"                              \
    "{{ raise_exception('after an optional system prompt, user and assistant take turns') }}"      \
    "{% endif %}"
#define ASKED(opening) "{% if add_generation_prompt %}{{ '" opening "' }}{% endif %}"

static const char chatml[] =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{% endfor %}" ASKED("<|im_start|>assistant\\n");

static const char llama3[] =
    "{{ bos_token }}{% for m in messages %}"
    "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + "
    "'<|eot_id|>' }}{% endfor %}" ASKED("<|start_header_id|>assistant<|end_header_id|>\\n\\n");

static const char llama2[] =
    "{% if messages[0].role == 'system' %}{% set rest = messages[1:] %}"
    "{% set system = '<<SYS>>\\n' + messages[0].content + '\\n<</SYS>>\\n\\n' %}{% else %}"
    "{% set rest = messages %}{% set system = '' %}{% endif %}{% for m in rest %}" TURNS
    "{% if m.role == 'user' %}{{ bos_token ~ '[INST] ' ~ "
    "((system if loop.first else '') + m.content) | trim + ' [/INST]' }}{% else %}"
    "{{ ' ' + m.content | trim + ' ' + eos_token }}{% endif %}{% endfor %}";

static const char gemma[] =
    "{{ bos_token }}{% if messages[0].role == 'system' %}{% set rest = messages[1:] %}"
    "{% set system = messages[0].content + '\\n\\n' %}{% else %}{% set rest = messages %}"
    "{% set system = '' %}{% endif %}{% for m in rest %}" TURNS
    "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else 'user') + '\\n' + "
    "(system if loop.first else '') + m.content | trim + '<end_of_turn>\\n' }}"
    "{% endfor %}" ASKED("<start_of_turn>model\\n");

/* Reasoning is kept only behind the last question that no tool answered, and the last answer has a
 * block for it also if it is empty. */
static const char qwen3[] =
    "{% set ns = namespace(looking=true, question=messages | length - 1) %}"
    "{% for m in messages[::-1] %}{% if ns.looking and m.role == 'user' and not "
    "(m.content.startswith('<tool_response>') and m.content.endswith('</tool_response>')) %}"
    "{% set ns.looking = false %}{% set ns.question = messages | length - 1 - loop.index0 %}"
    "{% endif %}{% endfor %}{% for m in messages %}{% set content = m.content %}"
    "{% if m.role == 'assistant' %}{% set reasoning = '' %}{% if '</think>' in content %}"
    "{% set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1]"
    ".lstrip('\\n') %}{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
    "{% if loop.index0 > ns.question and (loop.last or reasoning) %}"
    "{% set content = '<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + "
    "content.lstrip('\\n') %}{% endif %}{% endif %}"
    "{{ '<|im_start|>' + m.role + '\\n' + content + '<|im_end|>\\n' }}"
    "{% endfor %}" ASKED("<|im_start|>assistant\\n");

/* Without an end of text the line end ends an answer. */
#define PLAIN                                                                                      \
    "{% for m in messages %}{{ m.role + ': ' + m.content }}"                                       \
    "{% if m.role == 'assistant' and eos_token is defined %}{{ eos_token }}"                       \
    "{% else %}{{ '\\n' }}{% endif %}{% endfor %}" ASKED("assistant:")
static const char plain[] = PLAIN, plain_begun[] = "{{ bos_token }}" PLAIN;

static const coh_chat_form_facts all[] = {
    [COH_CHAT_FORM_CHATML] = { .description = "ChatML (<|im_start|>)",
                               .template_text = chatml,
                               .tokens = { "<|im_start|>", "<|im_end|>" } },
    [COH_CHAT_FORM_LLAMA3] = { .description = "Llama 3 (<|start_header_id|>)",
                               .template_text = llama3,
                               .tokens = { "<|start_header_id|>", "<|end_header_id|>",
                                           "<|eot_id|>" },
                               .begin_of_text = "<|begin_of_text|>" },
    [COH_CHAT_FORM_LLAMA2] = { .description = "Llama 2 ([INST])",
                               .template_text = llama2,
                               .begin_of_text = "<s>" },
    [COH_CHAT_FORM_GEMMA] = { .description = "Gemma (<start_of_turn>)",
                              .template_text = gemma,
                              .tokens = { "<start_of_turn>", "<end_of_turn>" },
                              .begin_of_text = "<bos>" },
    [COH_CHAT_FORM_QWEN3] = { .description = "Qwen3 (<|im_start|>, and <think> in the last answer)",
                              .template_text = qwen3,
                              .tokens = { "<|im_start|>", "<|im_end|>", "<think>", "</think>" } },
    [COH_CHAT_FORM_PLAIN] = { .description = "plain (\"user: \", \"assistant: \")",
                              .template_text = plain,
                              .begun_text = plain_begun },
};

const coh_chat_form_facts *coh_chat_form_find(coh_chat_form form)
{
    const size_t count = sizeof(all) / sizeof(all[0]);
    return (size_t)form < count && all[form].template_text ? &all[form] : NULL;
}
