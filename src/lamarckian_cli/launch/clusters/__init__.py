"""Ray clusters: planned on paper, written as manifests, brought up over SSH and taken down."""
