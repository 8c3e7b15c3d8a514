"""What a task leaves behind for later use: files of plain numbers, checked when they are loaded."""
