"""The tools of the exam, by family.  None of these names occurs in the training code (tests/exam)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter a tool may have.

    Attributes:
        name: as in the schema.
        kind: "string", "number", "integer", "boolean", "enum", "array" or "object".
        about: its description, a noun phrase.
        choices: values of an enum; names of an object's fields.
    """

    name: str
    kind: str
    about: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool with more parameters than one schema shows.

    Attributes:
        name: as in the schema.
        about: its description.
        acts: ways to ask for it, each an imperative without its arguments.
        parameters: the pool to draw from.
    """

    name: str
    about: str
    acts: tuple[str, ...]
    parameters: tuple[Parameter, ...]


def _p(name: str, kind: str, about: str, *choices: str) -> Parameter:
    return Parameter(name=name, kind=kind, about=about, choices=choices)


def _t(name: str, about: str, acts: tuple[str, ...], *parameters: Parameter) -> Tool:
    return Tool(name=name, about=about, acts=acts, parameters=parameters)


FAMILIES: dict[str, tuple[Tool, ...]] = {
    "harbour": (
        _t("moor_vessel", "Moor a vessel at a berth of the harbour.",
           ("moor a vessel", "get a vessel moored"),
           _p("hull_mark", "string", "mark on the hull of the vessel"),
           _p("berth_slot", "integer", "slot number of the berth"),
           _p("draught_m", "number", "draught of the vessel in metres"),
           _p("tug_needed", "boolean", "whether a tug is needed"),
           _p("fender_side", "enum", "side that gets the fenders", "portside", "starboard", "astern")),
        _t("sound_foghorn", "Sound the foghorn of a pier.", ("sound the foghorn", "let the foghorn sound"),
           _p("pier_ref", "string", "reference of the pier"),
           _p("blast_count", "integer", "number of blasts"),
           _p("blast_gap", "number", "gap between two blasts"),
           _p("lamp_too", "boolean", "whether the lamp flashes too")),
        _t("log_manifest", "Write the cargo manifest of a barge.",
           ("write a cargo manifest", "log the cargo"),
           _p("barge_tag", "string", "tag of the barge"),
           _p("crate_marks", "array", "marks of the crates"),
           _p("hold_plan", "object", "plan of the hold", "fore", "aft"),
           _p("stevedore", "string", "name of the stevedore")),
    ),
    "apiary": (
        _t("inspect_hive", "Inspect a beehive of the apiary.",
           ("inspect a beehive", "have a beehive inspected"),
           _p("hive_plate", "string", "text on the plate of the hive"),
           _p("frame_count", "integer", "number of frames to lift"),
           _p("smoke_first", "boolean", "whether to use smoke first"),
           _p("queen_hue", "enum", "hue of the queen's dot", "ochre", "teal", "magenta", "ivory")),
        _t("bottle_honey", "Bottle honey from a comb.", ("bottle some honey", "get honey bottled"),
           _p("comb_ref", "string", "reference of the comb"),
           _p("jar_volume", "number", "volume of a jar in litres"),
           _p("seal_text", "string", "text on the seal"),
           _p("blend_parts", "object", "parts of the blend", "clover", "heather")),
        _t("move_swarm", "Move a swarm to another box.", ("move a swarm", "bring a swarm to another box"),
           _p("box_from", "string", "box where the swarm is"),
           _p("box_onto", "string", "box where the swarm goes"),
           _p("dusk_only", "boolean", "whether to wait for dusk")),
    ),
    "kiln": (
        _t("fire_kiln", "Fire the pottery kiln.", ("fire the kiln", "start firing the kiln"),
           _p("cone_grade", "string", "grade of the cone"),
           _p("soak_hours", "number", "hours of soaking"),
           _p("shelf_loads", "array", "loads of the shelves"),
           _p("vent_state", "enum", "state of the vent", "ajar", "shut", "halfway")),
        _t("mix_glaze", "Mix a glaze from powders.", ("mix a glaze", "have a glaze mixed"),
           _p("glaze_title", "string", "title of the glaze"),
           _p("powder_grams", "object", "grams of each powder", "silica", "borax"),
           _p("sieve_mesh", "integer", "mesh of the sieve"),
           _p("lead_free", "boolean", "whether it is free of lead")),
        _t("throw_pot", "Throw a pot on the wheel.", ("throw a pot", "make a pot on the wheel"),
           _p("clay_body", "string", "clay to use"),
           _p("wheel_rpm", "integer", "speed of the wheel"),
           _p("rim_width", "number", "width of the rim")),
    ),
    "observatory": (
        _t("aim_telescope", "Aim the telescope at a patch of sky.",
           ("aim the telescope", "point the telescope"),
           _p("star_label", "string", "label of the star"),
           _p("azimuth_deg", "number", "azimuth in degrees"),
           _p("exposure_ms", "integer", "exposure in milliseconds"),
           _p("dome_light", "boolean", "whether the dome is lit"),
           _p("filter_glass", "enum", "glass of the filter", "cyan7", "umber2", "clearband")),
        _t("stack_plates", "Stack photographic plates into one picture.",
           ("stack the plates", "stack plates"),
           _p("plate_ids", "array", "ids of the plates"),
           _p("stack_under", "string", "name to keep the stack under"),
           _p("reject_sigma", "number", "sigma above which a plate is rejected")),
        _t("note_meteor", "Note a meteor in the night book.",
           ("note a meteor", "put a meteor in the night book"),
           _p("seen_by", "string", "name of the observer"),
           _p("trail_span", "number", "span of the trail"),
           _p("sky_corner", "object", "corner of the sky", "alt", "azi"),
           _p("was_split", "boolean", "whether the meteor split")),
    ),
    "loom": (
        _t("thread_loom", "Thread a loom for a weave.", ("thread the loom", "get the loom threaded"),
           _p("weave_draft", "string", "draft of the weave"),
           _p("heddle_order", "array", "order of the heddles"),
           _p("warp_ends", "integer", "number of warp ends"),
           _p("selvedge", "enum", "kind of selvedge", "tucked", "leno", "fringed")),
        _t("dye_skein", "Dye a skein of yarn.", ("dye a skein", "have a skein dyed"),
           _p("skein_ticket", "string", "ticket of the skein"),
           _p("dip_minutes", "integer", "minutes in the bath"),
           _p("mordant", "string", "mordant to use"),
           _p("rinse_cold", "boolean", "whether to rinse it cold")),
    ),
    "glacier": (
        _t("drill_core", "Drill an ice core on the glacier.", ("drill an ice core", "get a core drilled"),
           _p("camp_sign", "string", "sign of the camp"),
           _p("bore_depth", "number", "depth of the bore in metres"),
           _p("barrel_no", "integer", "number of the barrel"),
           _p("heated_bit", "boolean", "whether the bit is heated")),
        _t("store_core", "Store an ice core in the cold vault.", ("store an ice core", "put a core away"),
           _p("core_stamp", "string", "stamp of the core"),
           _p("vault_rack", "integer", "rack in the vault"),
           _p("slice_cuts", "array", "cuts of the slices"),
           _p("wrap_film", "enum", "film to wrap it in", "mylar", "wax", "linenfoil")),
        _t("mark_crevasse", "Mark a crevasse on the map.", ("mark a crevasse", "put a crevasse on the map"),
           _p("rope_team", "string", "name of the rope team"),
           _p("gap_spot", "object", "spot of the crevasse", "east_m", "north_m"),
           _p("bridge_safe", "boolean", "whether the snow bridge is safe")),
    ),
    "puppetry": (
        _t("carve_puppet", "Carve a puppet for the stage.", ("carve a puppet", "have a puppet carved"),
           _p("puppet_alias", "string", "alias of the puppet"),
           _p("string_total", "integer", "number of strings"),
           _p("wood_sort", "enum", "sort of wood", "lindenwood", "balsa", "pearwood"),
           _p("jaw_moves", "boolean", "whether the jaw moves")),
        _t("cue_scene", "Cue a scene of the puppet play.", ("cue a scene", "give the cue for a scene"),
           _p("scene_code", "string", "code of the scene"),
           _p("fade_beats", "number", "beats of the fade"),
           _p("cast_list", "array", "puppets in the scene"),
           _p("spoken_line", "string", "line that is spoken")),
    ),
    "mill": (
        _t("grind_grain", "Grind grain between the stones.", ("grind some grain", "have grain ground"),
           _p("sack_seal", "string", "seal on the sack"),
           _p("stone_gap", "number", "gap of the stones"),
           _p("sifted", "boolean", "whether the flour is sifted"),
           _p("bran_grade", "enum", "grade of the bran", "coarse9", "fluffy", "dusty")),
        _t("open_sluice", "Open the sluice of the mill race.", ("open the sluice", "let the sluice open"),
           _p("gate_nick", "string", "nickname of the gate"),
           _p("crank_turns", "integer", "turns of the crank"),
           _p("flow_limits", "object", "limits of the flow", "floor", "ceil"),
           _p("warn_millers", "array", "millers to warn")),
    ),
}  # fmt: skip

OBJECT_FIELD_TYPE = "integer"
INVENTED_VERBS = ("zap", "quell", "brace", "tilt", "hoist", "graft", "prime", "douse")
"""First parts of the names of tools that are made up for one question."""
