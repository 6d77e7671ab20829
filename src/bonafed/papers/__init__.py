"""Each paper's room: what it printed, method by method, beside the core that does better.

A room uses only public names (of ``bonafed``, ``bonafed.extending``, ``bonafed.functional`` and
``bonafed.data``) and has one word for each method, setting and baseline of its paper, with every
constant: ``rank.rank_admm()``, ``constrained.proximal_al(section="5.2")``,
``aspire.aspire_ease()``. No room imports another, and no default leads here.
"""
