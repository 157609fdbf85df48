"""Which published config.json key feeds which attribute, as tables.

`gossamer.config.hf` walks these tables in both directions, so a key is named once.  Sections:
"top" is the file's root, "text" is `text_config` (or the root of a text-only file), the others are
objects inside "text" or beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

ABSENT: Final = object()
"""Marks a field that a file must have."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """One published key.

    ``names`` lists accepted spellings, the first is the one we write; ``default`` is what a file
    without the key means.
    """

    attribute: str
    names: tuple[str, ...]
    kind: str
    """int (at least 1), count (at least 0), float, bool, str, pair; a trailing "?" also accepts null."""
    default: Any = ABSENT


def _field(attribute: str, kind: str, *names: str, default: Any = ABSENT) -> Field:
    return Field(attribute=attribute, names=names or (attribute,), kind=kind, default=default)


TOKEN_IDS: Final = (
    _field("bos_token_id", "count?", default=None),
    _field("eos_token_id", "count?", default=None),
    _field("pad_token_id", "count?", default=None),
    _field("media_token_id", "count?", "media_placeholder_token_id", default=None),
    _field("tie_word_embeddings", "bool", default=False),
)
"""Read at the root; K3 repeats some of them inside text_config, where they are kept as they stand."""

TEXT: Final = (
    _field("vocab_size", "int"),
    _field("hidden_size", "int"),
    _field("intermediate_size", "int"),
    _field("num_layers", "int", "num_hidden_layers"),
    _field("activation", "str", "hidden_act"),
    _field("situ_beta", "float?", "activation_situ_beta", default=None),
    _field("situ_linear_beta", "float?", "activation_situ_linear_beta", default=None),
    _field("rms_norm_eps", "float", default=1e-5),
    _field("max_context", "int", "max_position_embeddings", "model_max_length", default=1_048_576),
    _field("attn_res_block_size", "count?", default=None),
    _field("initializer_range", "float", default=0.02),
    _field("num_mtp_layers", "count", "num_nextn_predict_layers", default=0),
)

MLA: Final = (
    _field("num_heads", "int", "num_attention_heads"),
    _field("q_lora_rank", "int?", default=None),
    _field("kv_lora_rank", "int"),
    _field("qk_nope_head_dim", "int"),
    _field("qk_rope_head_dim", "int"),
    _field("v_head_dim", "int"),
    _field("output_gate", "bool", "mla_use_output_gate", default=False),
)

MOE: Final = (
    _field("num_experts", "int", "num_experts", "n_routed_experts", "num_local_experts"),
    _field("experts_per_token", "int", "num_experts_per_token", "num_experts_per_tok"),
    _field("num_shared_experts", "count", "num_shared_experts", "n_shared_experts", default=0),
    _field("intermediate_size", "int", "moe_intermediate_size"),
    _field("latent_size", "count?", "routed_expert_hidden_size", default=None),
    _field("latent_norm", "bool", "latent_moe_use_norm", default=False),
    _field("renormalize", "bool", "moe_renormalize", "norm_topk_prob", default=True),
    _field("routed_scaling_factor", "float", default=1.0),
    _field("first_dense_layers", "count", "first_k_dense_replace", default=0),
    _field("layer_freq", "int", "moe_layer_freq", default=1),
    _field("num_groups", "int", "num_expert_group", "n_group", default=1),
    _field("top_k_groups", "int", "topk_group", default=1),
)

KDA: Final = (
    _field("num_heads", "int"),
    _field("head_dim", "int"),
    _field("conv_kernel_size", "int", "short_conv_kernel_size", default=4),
    _field("full_rank_gate", "bool", "use_full_rank_gate", default=False),
    _field("gate_lower_bound", "float?", default=None),
)

DSA: Final = (
    _field(
        "num_heads", "int", "index_n_heads", "n_heads", "num_heads", "index_num_heads", "indexer_num_heads"
    ),
    _field("head_dim", "int", "index_head_dim", "head_dim", "indexer_head_dim", "index_key_dim"),
    _field("top_k", "int", "index_topk", "topk", "top_k", "index_top_k", "indexer_topk"),
)
"""No source shows the real key names (only the values), hence the long lists; `hf` also guesses."""

DSA_LAYERS: Final = ("layers", "dsa_layers", "indexer_layers", "dsa_attn_layers", "index_layers")

VISION: Final = (
    _field("hidden_size", "int", "vt_hidden_size"),
    _field("intermediate_size", "int", "vt_intermediate_size"),
    _field("num_layers", "int", "vt_num_hidden_layers"),
    _field("num_heads", "int", "vt_num_attention_heads"),
    _field("qkv_size", "int", "qkv_hidden_size"),
    _field("patch_size", "int", default=14),
    _field("pos_emb_height", "int", "init_pos_emb_height", default=64),
    _field("pos_emb_width", "int", "init_pos_emb_width", default=64),
    _field("pos_emb_time", "int", "init_pos_emb_time", default=4),
    _field("merge_size", "pair", "merge_kernel_size", default=(2, 2)),
    _field("projector_hidden_size", "int", "mm_hidden_size"),
    _field("projector_eps", "float", "projector_ln_eps", default=1e-5),
    _field("text_hidden_size", "int"),
)

OWN: Final = (
    _field("lora_norm_eps", "float", default=1e-6),
    _field("l2_norm_eps", "float", default=1e-6),
    _field("k_norm_eps", "float", default=1e-5),
    _field("k_norm_bias", "bool?", default=None),
    _field("a_log_multiple", "int?", default=None),
    _field("scale_rule", "str", default="even"),
)
"""Facts about a checkpoint that no published key carries; they live in a root object "gossamer"."""

REQUIRED_VALUES: Final = {
    "mla_use_nope": True,
    "moe_router_activation_func": "sigmoid",
    "topk_method": "noaux_tc",
}
"""Text keys whose other values would be a different network that this package does not have."""

# Keys that change nothing about tensors or arithmetic: kept and written back, but not worth a warning.
_TEXT_BOILERPLATE = """
    _name_or_path add_cross_attention architectures attention_bias attention_dropout attn_implementation
    auto_map bad_words_ids begin_suppress_tokens bos_token_id chunk_size_feed_forward
    cross_attention_hidden_size decoder_start_token_id diversity_penalty do_sample dtype early_stopping
    encoder_no_repeat_ngram_size eos_token_id exponential_decay_length_penalty finetuning_task
    forced_bos_token_id forced_eos_token_id head_dim id2label ignore_index image_placeholder is_decoder
    is_encoder_decoder label2id length_penalty max_length min_length mla_use_nope model_type
    moe_router_activation_func no_repeat_ngram_size num_beam_groups num_beams num_key_value_heads
    num_return_sequences output_attentions output_hidden_states output_router_logits output_scores
    pad_token_id prefix pretraining_tp problem_type pruned_heads remove_invalid_values repetition_penalty
    return_dict return_dict_in_generate rope_parameters rope_scaling rope_theta sep_token_id
    suppress_tokens task_specific_params temperature tf_legacy_loss tie_encoder_decoder
    tie_word_embeddings tokenizer_class top_k top_p topk_method torch_dtype torchscript
    transformers_version typical_p use_bfloat16 use_cache use_grouped_topk
"""
_VISION_BOILERPLATE = """
    _attn_implementation activation_func attn_bias linear_bias merge_type mlp_type mm_projector_type
    model_type norm_type patch_embed_proj_bias pos_emb_interpolation_mode pos_emb_type
    projector_hidden_act vision_config dsa_config quantization_config
"""
_QUANT_BOILERPLATE = (
    "config_groups global_compression_ratio format kv_cache_scheme quant_method quantization_status"
)

HARMLESS: Final = frozenset((_TEXT_BOILERPLATE + _VISION_BOILERPLATE + _QUANT_BOILERPLATE).split())
