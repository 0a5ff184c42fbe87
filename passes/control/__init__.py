"""Operations that own functions: loops, branches, regions, and rules that users give."""
