"""States as facts and arrays, whole."""

from fedboost.ground.state import join_state, split_state


def state_dict(kind, held):
    """Return facts and arrays of a state with all that its lists hold."""
    facts, arrays, grown = split_state(kind, held)
    return join_state(facts, arrays, [kept_list.since(0) for kept_list in grown.values()])
