"""Artefacts of tasks for later use: files of plain numbers, checked when they are loaded."""
