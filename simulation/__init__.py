"""Simulation of signals and of the library of theories; not part of the package."""
